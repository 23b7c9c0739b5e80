import assert from "node:assert/strict";
import { chmod, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { mock, test } from "node:test";

import extension from "../index.js";

const manifest = async (name) => JSON.parse(await readFile(new URL(`../${name}`, import.meta.url), "utf8"));

/** What OpenClaw gives an extension, and what the extension registered there. */
function host(pluginConfig) {
  const registered = { hooks: {}, lines: [] };
  const say = (line) => registered.lines.push(line);
  const api = {
    pluginConfig,
    logger: { info: say, warn: say },
    on: (name, handler) => (registered.hooks[name] = handler),
    registerProvider: (provider) => (registered.provider = provider),
    registerService: (service) => (registered.service = service),
    lifecycle: { registerRuntimeLifecycle: (lifecycle) => (registered.lifecycle = lifecycle) },
  };
  extension.register(api);
  return { ...registered, logger: api.logger };
}

/** Resolves once the extension has said a line like this. */
async function said(lines, pattern) {
  while (!lines.some((line) => pattern.test(line))) await new Promise((resolve) => setImmediate(resolve));
}

test("the manifests name the same extension and provider", async () => {
  const [plugin, npm] = [await manifest("openclaw.plugin.json"), await manifest("package.json")];
  assert.deepEqual([plugin.id, npm.name], [extension.id, extension.id]);
  assert.deepEqual(plugin.providers, [host({}).provider.id]);
  assert.deepEqual(npm.openclaw.providers, plugin.providers);
});

test("the settings switch the parts off", () => {
  assert.equal(host({ headers: false }).provider, undefined);
  assert.equal(host({ start: false }).service, undefined);
});

test("a MetaClaw that cannot be started is said, and nothing is thrown", async () => {
  const { service, lines, logger } = host({ command: "/nowhere/metaclaw" });
  const failures = [];
  const serviceHealth = { reportFailure: (error) => failures.push(error), clearFailure() {} };
  service.start({ stateDir: tmpdir(), logger, serviceHealth });
  await said(lines, /OpenClaw goes on without MetaClaw: cannot run \/nowhere\/metaclaw/);
  assert.equal(failures.length, 1);
});

test("MetaClaw outlives the gateway, and ends after the extension is disabled", async (context) => {
  const folder = await mkdtemp(join(tmpdir(), "metaclaw-openclaw-"));
  context.after(() => rm(folder, { recursive: true }));
  const command = join(folder, "metaclaw");
  const script = `case "$1" in
  status) test -f "$0.runs" || exit 3; echo '{"pid": 7, "since_ms": 1}' ;;
  start) touch "$0.runs" ;;
  stop) rm "$0.runs" ;;
esac`;
  await writeFile(command, `#!/bin/sh\n${script}\n`);
  await chmod(command, 0o755);
  const { service, lifecycle, hooks, lines, logger } = host({ command });
  service.start({ stateDir: folder, logger });
  await said(lines, /MetaClaw is started/);

  mock.timers.enable({ apis: ["setTimeout"] });
  context.after(() => mock.timers.reset());
  hooks.gateway_stop({ reason: "gateway stopping" });
  lifecycle.cleanup({ reason: "disable" });
  mock.timers.tick(60_000);
  assert.equal(lines.length, 1);

  hooks.gateway_stop({ reason: "plugin replacement" });
  lifecycle.cleanup({ reason: "restart" });
  mock.timers.tick(60_000);
  assert.equal(lines.length, 1);

  lifecycle.cleanup({ reason: "disable" });
  mock.timers.tick(15_000);
  mock.timers.reset();
  await said(lines, /MetaClaw is stopped, and openclaw.json is restored/);
});
