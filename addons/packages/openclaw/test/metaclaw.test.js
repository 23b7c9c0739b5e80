import assert from "node:assert/strict";
import { access, chmod, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, test } from "node:test";

import { MetaClaw, record } from "../metaclaw.js";

let folder;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "metaclaw-openclaw-"));
});

afterEach(() => rm(folder, { recursive: true }));

/** A program that writes its arguments down, and then does what the script says. */
async function program(script) {
  const path = join(folder, "metaclaw");
  await writeFile(path, `#!/bin/sh\necho "$*" >> '${folder}/calls'\n${script}\n`);
  await chmod(path, 0o755);
  return path;
}

/** A script that can be started and stopped, and says that its process began at `since`. */
function server(since) {
  return `case "$1" in
  status) test -f "$0.runs" || exit 3; echo '{"pid": 7, "since_ms": ${since}}' ;;
  start) touch "$0.runs" ;;
  stop) rm "$0.runs" ;;
esac`;
}

async function calls() {
  const text = await readFile(join(folder, "calls"), "utf8");
  return text.trim().split("\n");
}

function exists(path) {
  return access(path).then(
    () => true,
    () => false,
  );
}

test("it is started and wired if it does not run, and only then stopped", async () => {
  const command = await program(server(1));
  const metaclaw = new MetaClaw({ command });
  assert.equal(await metaclaw.stopIfOurs(folder, 4), false);
  assert.equal(await metaclaw.ensure(folder), "is started");
  assert.equal(await exists(record(folder)), true);
  assert.equal(await metaclaw.stopIfOurs(folder, 4), true);
  assert.equal(await metaclaw.stopIfOurs(folder, 4), false);
  assert.deepEqual(await calls(), [
    "status --json",
    "start --daemon --yes",
    "status --json",
    "status --json",
    "stop --timeout 4",
  ]);
});

test("one that a person started since is not stopped", async () => {
  const metaclaw = new MetaClaw({ command: await program(server(1)) });
  assert.equal(await metaclaw.ensure(folder), "is started");
  await program(server(2));
  assert.equal(await metaclaw.stopIfOurs(folder, 4), false);
  await program(server(1));
  assert.equal(await metaclaw.stopIfOurs(folder, 4), false, "the record is gone");
});

test("one that runs already is left alone, and is not stopped", async () => {
  const command = await program("exit 0");
  const metaclaw = new MetaClaw({ command });
  assert.equal(await metaclaw.ensure(folder), "runs already");
  assert.equal(await metaclaw.stopIfOurs(folder, 4), false);
  assert.deepEqual(await calls(), ["status --json"]);
});

test("the home is named, and OpenClaw is not wired unless that is wanted", async () => {
  const command = await program(server(1));
  await new MetaClaw({ command, home: "/srv/m c", wire: false }).ensure(folder);
  const status = "status --json --home /srv/m c";
  assert.deepEqual(await calls(), [status, "start --daemon --no-wire --home /srv/m c", status]);
});

test("an error says what metaclaw said", async () => {
  const command = await program('[ "$1" = status ] && exit 3; echo "port 30000 is taken" >&2; exit 1');
  await assert.rejects(new MetaClaw({ command }).ensure(folder), /metaclaw start: port 30000 is taken/);
  assert.equal(await exists(record(folder)), false);
});

test("a home that cannot be read starts nothing", async () => {
  const command = await program("echo 'config.yaml: line 3' >&2; exit 1");
  await assert.rejects(new MetaClaw({ command }).ensure(folder), /metaclaw status: config.yaml: line 3/);
  assert.deepEqual(await calls(), ["status --json"]);
});

test("a missing program is an error that names it", async () => {
  const metaclaw = new MetaClaw({ command: join(folder, "absent") });
  await assert.rejects(metaclaw.ensure(folder), /cannot run .*absent: there is no such program on the gateway's PATH/);
});

test("the record stays if stopping fails", async () => {
  const command = await program("exit 1");
  await writeFile(record(folder), "{}");
  await assert.rejects(new MetaClaw({ command }).stopIfOurs(folder, 4), /it ended with code 1/);
  assert.equal(await exists(record(folder)), true);
});

test("a background process that keeps the pipes open does not hold the start up", async () => {
  const command = await program(`[ "$1" = start ] && { sleep 30 & echo $! > "$0.pid"; }\n${server(1)}`);
  await new MetaClaw({ command }).ensure(folder);
  process.kill(Number(await readFile(`${command}.pid`, "utf8")));
});
