//! Finds a tool's name in a model's version of it.

use serde_json::Value;

/// Returns the tool that a model meant by `written`, for example `functions.exec:0` or `call_kimi_3`.
///
/// If it, or a part of it, is one of `tools`, that one is returned. Otherwise the original's rules apply: without a
/// leading `functions.`, the last part that is not a number, without digits and `_-.` at its end. If a model wrote a
/// call's id instead of a name, the arguments decide.
pub(super) fn normalised(written: &str, arguments: &str, tools: &[String]) -> String {
    let is_tool = |name: &&str| tools.iter().any(|tool| tool == name);
    let bare = without_prefix(without_number(written));
    let is_number = |part: &&str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let last = bare.split('.').rfind(|part| !is_number(part)).unwrap_or("");
    let trimmed = last
        .trim_end_matches(|c: char| c.is_ascii_digit())
        .trim_matches(['_', '-', '.']);
    if let Some(tool) = [written, bare, last, trimmed].into_iter().find(is_tool) {
        return tool.to_owned();
    }
    let is_handle = trimmed.starts_with("call_kimi") || trimmed.starts_with("call_xml");
    if trimmed.is_empty() || is_handle {
        return by_arguments(trimmed, arguments).to_owned();
    }
    trimmed.to_owned()
}

/// Kimi numbers its calls: `exec:0`.
fn without_number(name: &str) -> &str {
    match name.rsplit_once(':') {
        Some((name, number)) if number.bytes().all(|b| b.is_ascii_digit()) => name,
        Some(_) | None => name,
    }
}

fn without_prefix(name: &str) -> &str {
    let prefixes = ["functions.", "functions_"];
    let bare = prefixes.iter().find_map(|prefix| name.strip_prefix(prefix));
    bare.unwrap_or(name)
}

fn by_arguments(name: &str, arguments: &str) -> &'static str {
    let arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
    let has = |field: &str| arguments.get(field).is_some();
    if has("command") {
        "exec"
    } else if has("sessionId") {
        "process"
    } else if has("file_path") && has("content") {
        "write"
    } else if has("file_path") || name.contains("read") {
        "read"
    } else if name.contains("write") {
        "write"
    } else {
        "unknown_tool"
    }
}
