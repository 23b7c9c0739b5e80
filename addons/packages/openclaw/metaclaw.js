// Starts and stops the program `metaclaw`.

import { spawn } from "node:child_process";
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";

/** A first start reads OpenClaw's settings, and may wait for a training server that loads its model. */
const START_MS = 180_000;
const STATUS_MS = 20_000;
/** `metaclaw status` ends with this code if no process runs in the home. */
const NOT_RUNNING = 3;
/** Characters of a command's output that are kept: its end. The status as JSON is a few thousand. */
const KEPT = 1_000_000;
/** Characters of it that an error shows. */
const SHOWN = 2_000;
/** A background process may hold the pipes of the command that started it, so their end is not waited for longer. */
const FLUSH_MS = 250;

/** The program with its home. `settings`: `command`, `home` and `wire`, as in openclaw.plugin.json. */
export class MetaClaw {
  #settings;

  constructor(settings = {}) {
    this.#settings = { command: "metaclaw", wire: true, ...settings };
  }

  /**
   * Starts MetaClaw unless it runs. A file in `stateDir` records which process this extension started.
   *
   * Returns in words what happened. Throws an error that says why MetaClaw could not be started.
   */
  async ensure(stateDir) {
    const status = await this.#run(["status", "--json"], STATUS_MS);
    if (status.code === 0) return "runs already";
    if (status.code !== NOT_RUNNING) throw failed("status", status);
    const args = ["start", "--daemon", this.#settings.wire ? "--yes" : "--no-wire"];
    const started = await this.#run(args, START_MS);
    if (started.code !== 0) throw failed("start", started);
    await mkdir(stateDir, { recursive: true });
    const process = await this.#process();
    await writeFile(record(stateDir), `${JSON.stringify({ home: this.#settings.home ?? null, process })}\n`);
    return "is started";
  }

  /**
   * Stops MetaClaw if it is the process that this extension started, and not one that a person started since. Returns
   * whether it did.
   */
  async stopIfOurs(stateDir, seconds) {
    const path = record(stateDir);
    const text = await readFile(path, "utf8").catch(() => undefined);
    if (text === undefined) return false;
    const process = await this.#process();
    if (process === null || process !== parsed(text)?.process) {
      await rm(path, { force: true });
      return false;
    }
    const stopped = await this.#run(["stop", "--timeout", String(seconds)], (seconds + 5) * 1000);
    if (stopped.code !== 0) throw failed("stop", stopped);
    await rm(path, { force: true });
    return true;
  }

  /** The running process: its id and when it began. Null if none runs. */
  async #process() {
    const status = await this.#run(["status", "--json"], STATUS_MS);
    if (status.code === NOT_RUNNING) return null;
    const about = status.code === 0 ? parsed(status.output) : undefined;
    if (about?.pid === undefined) throw failed("status", status);
    return `${about.pid} ${about.since_ms}`;
  }

  #run(args, limitMs) {
    const { command, home } = this.#settings;
    return run(command, home === undefined ? args : [...args, "--home", home], limitMs);
  }
}

/** The file by which a later gateway knows that this extension started MetaClaw. */
export function record(stateDir) {
  return join(stateDir, "metaclaw-openclaw.json");
}

/** A text as JSON, or undefined if it is none. */
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function failed(subcommand, { code, output }) {
  const said = output.slice(-SHOWN).trim() || `it ended with code ${code}`;
  return new Error(`metaclaw ${subcommand}: ${said}`);
}

/** Runs a program without a shell. Resolves to its exit code and the end of its output; `limitMs` is its deadline. */
function run(command, args, limitMs) {
  return new Promise((resolve, reject) => {
    // A group of its own: signals to the gateway's group do not end MetaClaw.
    const child = spawn(command, args, { detached: true, stdio: ["ignore", "pipe", "pipe"] });
    let output = "";
    const keep = (bytes) => {
      output = (output + bytes).slice(-KEPT);
    };
    child.stdout.on("data", keep);
    child.stderr.on("data", keep);
    const deadline = setTimeout(() => {
      child.kill();
      reject(new Error(`${command} ${args.join(" ")} took longer than ${limitMs / 1000} s`));
    }, limitMs);
    deadline.unref();
    child.on("error", (error) => {
      clearTimeout(deadline);
      const why = error.code === "ENOENT" ? "there is no such program on the gateway's PATH" : error.message;
      reject(new Error(`cannot run ${command}: ${why}`));
    });
    const finish = (code, signal) => {
      clearTimeout(deadline);
      child.stdout.destroy();
      child.stderr.destroy();
      resolve({ code: code ?? signal, output });
    };
    child.on("exit", (code, signal) => {
      const flush = setTimeout(() => finish(code, signal), FLUSH_MS);
      child.on("close", () => {
        clearTimeout(flush);
        finish(code, signal);
      });
    });
  });
}
