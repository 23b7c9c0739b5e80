import assert from "node:assert/strict";
import { test } from "node:test";

import { SessionKeys, sessionHeaders, withSessionHeaders } from "../sessions.js";

const SESSION = "717fda03-0e7b-4c1e-b385-279251af4f32";

test("the owner's session has its name and its agent, and no type", () => {
  const headers = sessionHeaders({ sessionId: SESSION, agentId: "main", sessionKey: "agent:main:main" });
  assert.deepEqual(headers, { "X-Session-Id": SESSION, "X-Agent-Id": "main" });
});

test("sessions in which no owner speaks are side turns", () => {
  for (const rest of ["cron:j:run:1", "subagent:9", "hook:2", "acp:x"]) {
    const { "X-Turn-Type": type } = sessionHeaders({ sessionId: SESSION, sessionKey: `agent:main:${rest}` });
    assert.equal(type, "side", rest);
  }
  for (const key of ["agent:main:telegram:direct:cron:1", "agent:cron:main", undefined]) {
    const headers = sessionHeaders({ sessionId: SESSION, sessionKey: key });
    assert.equal("X-Turn-Type" in headers, false, key);
  }
});

test("a name that MetaClaw would refuse is left out", () => {
  for (const agentId of ["_shared", "a b", "../x", "x".repeat(65), "", undefined]) {
    assert.deepEqual(sessionHeaders({ sessionId: SESSION, agentId }), { "X-Session-Id": SESSION }, agentId);
  }
  for (const sessionId of ["a\r\nX-Evil: 1", "", undefined, "s".repeat(129)]) {
    assert.deepEqual(sessionHeaders({ sessionId, agentId: "main" }), { "X-Agent-Id": "main" });
  }
});

test("the stream function gets the headers, and the owner's own win", () => {
  const keys = new SessionKeys();
  keys.note({ sessionId: SESSION, sessionKey: "agent:main:cron:j" });
  const calls = [];
  const streamFn = (...call) => calls.push(call);
  const wrapped = withSessionHeaders({ streamFn, agentId: "main" }, keys);
  wrapped("model", "context", { sessionId: SESSION, maxTokens: 5, headers: { "X-Agent-Id": "mine" } });
  const headers = { "X-Session-Id": SESSION, "X-Agent-Id": "mine", "X-Turn-Type": "side" };
  assert.deepEqual(calls, [["model", "context", { sessionId: SESSION, maxTokens: 5, headers }]]);
  wrapped("model", "context");
  assert.deepEqual(calls[1], ["model", "context", { headers: { "X-Agent-Id": "main" } }]);
  assert.equal(withSessionHeaders({ agentId: "main" }, keys), undefined);
});

test("the oldest sessions are forgotten", () => {
  const keys = new SessionKeys();
  for (let n = 0; n <= 4_096; n += 1) keys.note({ sessionId: `s${n}`, sessionKey: `k${n}` });
  assert.equal(keys.get("s0"), undefined);
  assert.equal(keys.get("s4096"), "k4096");
  keys.note({ sessionId: "s9" });
  assert.equal(keys.get("s9"), "k9");
});
