//! Beginnings of known clients' side turns, word for word.
//!
//! They were read in the packages of Claude Code 2.1.331, Codex 0.169.0, opencode 1.18.33, Hermes 0.19.0, nanobot
//! 0.3.5, aider 0.86.2, QwenPaw 2.2.2 and OpenClaw 2026.9.6, and in published sources of others. Each is a complete
//! phrase, so that an owner who asks for a title or a summary is not mistaken for a client.

/// Beginnings of the last text in the user's role.
pub(super) const OF_USERS: [&str; 80] = [
    // Claude Code: compaction, memory, recaps, labels, suggestions, its own searches and pages, insights.
    "CRITICAL: Respond with TEXT ONLY",
    "Your task is to create a detailed summary of the conversation so far",
    "Your task is to create a detailed summary of the RECENT portion of the conversation",
    "Your task is to create a detailed summary of this conversation.",
    "You are now acting as the memory extraction subagent",
    "The user stepped away and is coming back. Recap in under",
    "Generate a one-line session recap now",
    "Write a short summary label describing what these tool calls accomplished",
    "Describe your most recent action in 3-5 words",
    "[SUGGESTION MODE:",
    "Based on the conversation transcript above, has the following stopping condition been satisfied?",
    "Web page content: ---",
    "Analyze this Claude Code session and extract structured facets",
    "Analyze this Claude Code usage data and",
    "Summarize this portion of a Claude Code session transcript",
    "Generate a short kebab-case name (2-4 words) that captures the main topic of this conversation",
    // Codex.
    "You are performing a CONTEXT CHECKPOINT COMPACTION",
    // opencode: titles, summaries, compaction as it was and as it is.
    "Generate a title for this conversation:",
    "Summarize the following in less than 40 characters:",
    "Summarize what was done in this conversation. Write like a pull request description",
    "Summarize the actions (tool calls & reasoning) you did for the user",
    "Provide a detailed prompt for continuing our conversation above",
    "Create a new anchored summary from the conversation history",
    "Update the anchored summary",
    "Create an agent configuration based on this request:",
    // Hermes: reviews, compaction, calendar, pages, its mixture of agents.
    "Review the conversation above and consider saving to memory",
    "Review the conversation above and update the skill library",
    "Review the conversation above and update two things:",
    "You are a summarization agent creating a context checkpoint",
    "[IMPORTANT: You are running as a scheduled cron job",
    "You are a content extractor for a browser automation agent",
    "You are the aggregator in a Mixture of Agents process",
    "[The conversation above is the current state of the task. Give your most intelligent judgement",
    "You are an urgency classifier for a proactive assistant",
    // nanobot.
    "The scheduled time has arrived. Execute this scheduled cron job now",
    "Create a compact replacement checkpoint for this session",
    // OpenClaw: its calendar, sub-agents, reviews, memory.
    "[cron:",
    "[Subagent Context]",
    "[Subagent Task]",
    "Skill review. Distill new durable learning from the full retained conversation",
    "Review this agent's Skill Workshop as a collection",
    "You are a memory search agent. Another model is preparing the final user-facing answer",
    "Pre-compaction memory flush",
    "Session nearing auto-compaction",
    // Gemini CLI and Qwen Code.
    "First, reason in your scratchpad. Then, generate the",
    "Analyze *only* the content and structure of your immediately preceding response",
    "Summarize the following tool output to be a maximum of",
    // Cline and Roo Code.
    "<explicit_instructions type=\"summarize_task\"> The current conversation is rapidly running out of context",
    "Summarize the conversation so far, as described in the prompt instructions",
    "Generate an enhanced version of this prompt (reply with only the enhanced prompt",
    // goose.
    "Based on the conversation so far, provide a concise description of this session in 4 words or less",
    "Reply with only a description in four words or less",
    // Crush.
    "Generate a concise title for the following content:",
    // LibreChat, Open WebUI as they were.
    "Please generate a concise, 5-word-or-less title",
    "Detect user language and write in the same language an extremely concise title",
    "Create a concise, 3-5 word phrase with an emoji as a title",
    "Create a concise, 3-5 word title with an emoji as a title",
    // Zed, NextChat, Chatbox.
    "Generate a concise 3-7 word title for this conversation, omitting punctuation",
    "Please generate a four to five word title summarizing our conversation without any lead-in",
    "使用四到五个字直接返回这句话的简要主题",
    "Summarize the discussion briefly in 200 words or less to use as a prompt for future context",
    "简要总结一下对话内容，用作后续的上下文提示 prompt",
    "Based on the chat history, give this conversation a name",
    // pi.
    "Create a structured summary of this conversation branch",
    // OpenClaw: names of notes, stickers, speech, its boot, what goes on after a break.
    "Based on this conversation, generate a short 1-2 word filename slug",
    "This is the PREFIX of a turn that was too large to keep",
    "Describe this sticker image in 1-2 sentences",
    "You are an assistant that summarizes texts concisely while keeping the most important information",
    "You are running a boot check. Follow BOOT.md instructions exactly",
    "Continue the current task from the existing transcript, preserving completed work",
    // Claude Code: insights. Codex: memory, approvals, what an absent owner missed.
    "You're writing an \"At a Glance\" summary for a Claude Code usage insights report",
    "Analyze this rollout and produce JSON with",
    "The following is the Codex agent history added since your last approval assessment",
    "The following is the Codex agent history whose request action you are assessing",
    "Write a brief catch-up for a user returning to this task",
    // opencode, Hermes.
    "Generate a short name for a project copy from task context",
    "Summarize the following agent conversation turns concisely. This summary will replace these turns",
    "You are running as Hermes' background skill CURATOR",
    "Given the following page snapshot (accessibility tree representation)",
    // Anthropic's own packages, where a conversation grows too long.
    "You have been working on the task described above but have not yet completed it. Write a continuation summary",
];

/// Beginnings of a system prompt, or of one of its parts.
pub(super) const OF_SYSTEMS: [&str; 89] = [
    "You are a context summarization assistant",
    "You are a context summarization agent",
    "You are a title generator",
    "Analyze if this message indicates a new conversation topic",
    "Summarize this coding conversation in under",
    // Claude Code: titles, names, summaries, hooks, watchers; sub-agents of releases that send no header.
    "You are naming a coding session",
    "Generate a short kebab-case name (2-4 words) that captures the main topic of this conversation",
    "You are a helpful AI assistant tasked with summarizing conversations",
    "Write a short summary label describing what these tool calls accomplished",
    "Generate a concise, technical issue title (max 80 chars)",
    "You are a date/time parser that converts natural language",
    "You are a classifier. Answer with exactly one of these labels",
    "You are a security monitor for autonomous AI coding agents",
    "You are a strict, terse evaluation judge for coding-agent traces",
    "You are a background observer of the worker",
    "You are a background observer paired with the agent",
    "You are an assistant for performing a web search tool use",
    "You are evaluating a hook in Claude Code",
    "You are evaluating a stop-condition hook in Claude Code",
    "You are an agent for Claude Code, Anthropic's official CLI for Claude. Given the user's message",
    "You are a file search specialist for Claude Code",
    "You are a software architect and planning specialist for Claude Code",
    "You are a web-reading specialist for Claude Code",
    "You are a status line setup agent for Claude Code",
    "You are a subagent spawned by a workflow orchestration script",
    "You are a worker agent executing a task assigned by the coordinator",
    // Codex: approvals, memory, reviews.
    "You are judging one planned coding-agent action",
    "You are acting as a first-step asynchronous security reviewer",
    "You are acting as a reviewer for a proposed code change made by another engineer",
    "# Review guidelines: You are acting as a reviewer for a proposed code change",
    "You are a Memory Writing Agent",
    "## Memory Writing Agent",
    "You are part of an agent memory system",
    // opencode.
    "You are an elite AI agent architect specializing in crafting high-performance agent configurations",
    "You are a file search specialist. You excel at thoroughly navigating and exploring codebases",
    "Summarize what was done in this conversation. Write like a pull request description",
    // Hermes.
    "Generate a short, descriptive title (3-7 words) for a conversation",
    "You are a strict judge evaluating whether an autonomous agent has achieved",
    "You turn a user's plain-language objective into a structured completion contract",
    "You are the Kanban decomposer for the Hermes Agent board",
    "You are the Kanban triage specifier for the Hermes Agent board",
    "You are a profile-describer for the Hermes Agent kanban board",
    "You rewrite a user's latest message into one concise English question",
    "You are a reference advisor in a Mixture of Agents (MoA) process",
    "You are a security reviewer for an AI coding agent",
    // nanobot.
    "# Subagent You are a subagent spawned by the main agent",
    "Create a compact replacement checkpoint for this session",
    "You are running Dream. Consolidate the conversation history",
    "You are a notification gate for a background agent",
    "You write short, neutral chat titles",
    // aider.
    "You are an expert software engineer that generates concise, one-line Git commit messages",
    "*Briefly* summarize this partial conversation about programming",
    // QwenPaw.
    "You generate short titles for chat sessions",
    // OpenClaw.
    "You are a memory search agent. Another model is preparing the final user-facing answer",
    // Qwen Code, goose, Crush, LobeChat, Hugging Face's chat.
    "You are the component that summarizes internal chat history into a given structure",
    "## Task Context - An llm context limit was reached when a user was in a working session with an agent",
    "You will generate a short title based on the first message a user begins a conversation with",
    "You are summarizing a conversation to preserve context for continuing work later",
    "You are a professional conversation summarizer. Generate a concise title",
    // OpenClaw: labels, its diary, notes, observers, reviewers of what is about to be done.
    "You are keeping a dream diary. Write a single entry in first person",
    "You are labeling the supplied message, not participating in its conversation",
    "You judge the trajectory of a running AI agent session",
    "You classify one chat message from a user who was just asked to approve",
    "You write the live status line for an AI assistant that is working on a chat request",
    "You are synthesizing a user's screen activity log into timeline cards",
    "Write concise meeting notes in the transcript's language",
    "You are OpenClaw's exec safety reviewer",
    "You are OpenClaw's dashboard widget safety reviewer",
    "You are Reef's inbound prompt-injection classifier",
    "You are Reef's outbound DLP classifier",
    // Claude Code: memory, hooks, comments, searches, pull requests, its evaluations.
    "You are selecting memories that will be useful to Claude Code",
    "You are verifying a stop condition in Claude Code",
    "You are an expert reviewer of auto mode classifier rules for Claude Code",
    "You choose one acknowledgement for an artifact comment thread",
    "You classify artifact comment threads for dispatch",
    "You decide and compose artifact comment-thread responses",
    "You write one short acknowledgement sentence for an artifact comment thread",
    "You write single comment replies on artifact comment threads",
    "You write a 3-5 word progress label for a background agent",
    "You write the status card for one Claude Code thread",
    "You write the title and the description of a GitHub pull request for",
    "You run a web search for another Claude model, which is waiting on the result",
    "You are comparing a NEW coding-agent trajectory against a BASELINE",
    "You are grading the output of a coding agent against a criterion",
    "You are standing in for the MCP server",
    // Hermes' meetings, speech and commits.
    "You rewrite transcripts for Gemini",
    "You rewrite transcripts for the xAI",
    "You write git commit messages. Given a diff of staged changes",
    "You summarize meeting transcripts. Return only valid JSON with keys",
];

/// Lines below an agent's own system prompt when it talks to a sub-agent.
pub(super) const OF_SUB_AGENTS: [&str; 3] = [
    "You are a focused subagent working on a specific delegated task",
    "You are a subagent spawned by the main agent",
    "You are running as a subagent (depth",
];

/// Returns whether a text begins with a phrase, regardless of white space and case.
pub(super) fn begins_with(text: &str, phrase: &str) -> bool {
    let mut said = text.split_whitespace();
    let mut words = phrase.split_whitespace().peekable();
    while let Some(word) = words.next() {
        let Some(said) = said.next() else {
            return false;
        };
        let head = said.get(..word.len());
        let is_whole = words.peek().is_none() || said.len() == word.len();
        if !is_whole || head.is_none_or(|head| !head.eq_ignore_ascii_case(word)) {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phrase_is_known_however_its_blanks_are_written_and_only_as_a_whole() {
        let phrase = "# Subagent You are a subagent";
        assert!(begins_with(
            "\n# Subagent\n\nyou are a subagent, spawned",
            phrase
        ));
        assert!(!begins_with("# Subagents You are a subagent", phrase));
        assert!(!begins_with("# Subagent You are", phrase));
        assert!(!begins_with("a", "é"));
        assert!(begins_with("使用四到五个字", "使用"));
    }
}
