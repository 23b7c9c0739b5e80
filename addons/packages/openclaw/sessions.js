// Headers by which MetaClaw knows whose turn a model call is.

/** How many sessions' keys are remembered. */
const BOUND = 4_096;
/** Names that MetaClaw takes. */
const SESSION = /^[\x21-\x7e]{1,128}$/;
const AGENT = /^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$/;
/** MetaClaw's name for every agent. No caller may have it. */
const EVERY_AGENT = "_shared";
/** Sessions in which no owner speaks: calendar tasks, sub-agents, webhooks, requests of other programs' protocols. */
const NOT_THE_OWNER = /^agent:[^:]+:(?:cron|subagent|hook|acp):/i;

/** OpenClaw's session keys by session id. A stream function gets the id alone, and the key says what a session is. */
export class SessionKeys {
  #keys = new Map();

  /** Takes the event of OpenClaw's hook `model_call_started`, which comes before the call is made. */
  note({ sessionId, sessionKey }) {
    if (!sessionId || !sessionKey) return;
    this.#keys.delete(sessionId);
    this.#keys.set(sessionId, sessionKey);
    if (this.#keys.size > BOUND) this.#keys.delete(this.#keys.keys().next().value);
  }

  get(sessionId) {
    return this.#keys.get(sessionId);
  }
}

/**
 * The headers of one model call. A name that MetaClaw would refuse is left out, because a refusal would end the turn.
 *
 * `X-Turn-Type` is `side` where the session's key says so, and left out elsewhere: MetaClaw itself tells titles and
 * compactions from the owner's turns, and it would believe `main`.
 */
export function sessionHeaders({ sessionId, agentId, sessionKey }) {
  const headers = {};
  if (SESSION.test(sessionId ?? "")) headers["X-Session-Id"] = sessionId;
  if (AGENT.test(agentId ?? "") && agentId !== EVERY_AGENT) headers["X-Agent-Id"] = agentId;
  if (sessionKey && NOT_THE_OWNER.test(sessionKey)) headers["X-Turn-Type"] = "side";
  return headers;
}

/** The stream function of a provider's hook, with the headers added. A header that the owner configured wins. */
export function withSessionHeaders({ streamFn, agentId }, keys) {
  if (!streamFn) return undefined;
  return (model, context, options) => {
    const sessionId = options?.sessionId;
    const ours = sessionHeaders({ sessionId, agentId, sessionKey: keys.get(sessionId) });
    return streamFn(model, context, { ...options, headers: { ...ours, ...options?.headers } });
  };
}
