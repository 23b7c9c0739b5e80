// A native extension of OpenClaw. The gateway loads it and calls `register`.

import { MetaClaw } from "./metaclaw.js";
import { SessionKeys, withSessionHeaders } from "./sessions.js";

const ID = "metaclaw-openclaw";
/** The provider that `metaclaw start` adds to openclaw.json. */
const PROVIDER = "metaclaw";
const STOP_SECONDS = 20;
/**
 * How long after it was disabled the extension stops MetaClaw. OpenClaw may write openclaw.json for seconds after that, and
 * its command fails if another program writes the file too.
 */
const STOP_AFTER_MS = 15_000;
/** Where a later copy of this module, which OpenClaw may load anew, finds the stop that an earlier one planned. */
const PLANNED_STOP = Symbol.for(`${ID}.plannedStop`);
/** The reason that OpenClaw gives `gateway_stop` when only the extensions change and the gateway continues. */
const REPLACED = "plugin replacement";

export default {
  id: ID,
  name: "MetaClaw",
  description: "Starts MetaClaw with the gateway, and names the session of each model call to it",
  register(api) {
    const settings = { start: true, wire: true, headers: true, ...api.pluginConfig };
    if (settings.headers) registerHeaders(api);
    if (settings.start) registerStart(api, settings);
  },
};

function registerHeaders(api) {
  const keys = new SessionKeys();
  api.on("model_call_started", (event) => keys.note(event));
  api.registerProvider({
    id: PROVIDER,
    label: "MetaClaw",
    auth: [],
    wrapStreamFn: (context) => withSessionHeaders(context, keys),
  });
}

function registerStart(api, settings) {
  const metaclaw = new MetaClaw(settings);
  let stateDir;
  let starting = Promise.resolve();
  // A gateway that ends runs the same cleanup as one whose extension was disabled. MetaClaw must outlive it, because it
  // learns while nobody chats.
  let isGatewayEnding = false;
  async function stop() {
    await starting;
    try {
      const stopped = await metaclaw.stopIfOurs(stateDir, STOP_SECONDS);
      if (stopped) api.logger.info("MetaClaw is stopped, and openclaw.json is restored");
    } catch (error) {
      api.logger.warn(`MetaClaw still runs. Run \`metaclaw stop\`. ${error.message}`);
    }
  }
  api.on("gateway_stop", ({ reason }) => {
    isGatewayEnding = reason !== REPLACED;
  });
  api.registerService({
    id: ID,
    start(context) {
      clearTimeout(globalThis[PLANNED_STOP]);
      isGatewayEnding = false;
      stateDir = context.stateDir;
      // The gateway does not wait for MetaClaw: without it OpenClaw asks its own model.
      starting = metaclaw.ensure(stateDir).then(
        (outcome) => {
          context.serviceHealth?.clearFailure();
          context.logger.info(`MetaClaw ${outcome}`);
        },
        (error) => {
          context.serviceHealth?.reportFailure(error);
          context.logger.warn(`OpenClaw goes on without MetaClaw: ${error.message}`);
        },
      );
    },
    stop() {},
  });
  api.lifecycle.registerRuntimeLifecycle({
    id: ID,
    description: "Stops the MetaClaw that this extension started, which restores openclaw.json",
    cleanup({ reason }) {
      if (reason !== "disable" || isGatewayEnding || stateDir === undefined) return;
      clearTimeout(globalThis[PLANNED_STOP]);
      globalThis[PLANNED_STOP] = setTimeout(() => void stop(), STOP_AFTER_MS);
    },
  });
}
