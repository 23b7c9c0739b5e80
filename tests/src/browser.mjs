// Drives Chromium for the tests: reads one command a line, as JSON, and answers each with one line.
// Arguments: the folder of the driver's npm project, the browser's program.

import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const [folder, program] = process.argv.slice(2);
const { chromium } = createRequire(folder + "/package.json")("playwright-core");

const browser = await chromium.launch({
  executablePath: program,
  // Root has no sandbox. Names other than this machine's do not resolve, whatever asks for them.
  args: ["--no-sandbox", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"],
});
let page;
// What the page wanted and what it complained of since it was opened.
let seen;

async function open({ width, height, dark, within }) {
  await page?.context().close();
  const context = await browser.newContext({
    viewport: { width, height },
    colorScheme: dark ? "dark" : "light",
    reducedMotion: "reduce",
    locale: "en-GB",
    timezoneId: "UTC",
  });
  context.setDefaultTimeout(within);
  seen = { complaints: [], requests: [] };
  context.on("request", (request) => seen.requests.push(request.url()));
  page = await context.newPage();
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) {
      seen.complaints.push(`${message.type()}: ${message.text()} (${message.location().url})`);
    }
  });
  page.on("pageerror", (error) => seen.complaints.push(`thrown: ${error}`));
  page.on("dialog", (dialog) => {
    seen.complaints.push(`dialog: ${dialog.message()}`);
    dialog.accept();
  });
}

// The name that a screen reader tells of the element that has the focus.
const focused = () => {
  const it = document.activeElement;
  const name = it?.getAttribute("aria-label") ?? it?.labels?.[0]?.innerText ?? it?.innerText ?? "";
  return { tag: it?.tagName.toLowerCase() ?? "", name: name.trim(), href: it?.getAttribute("href") ?? "" };
};

const commands = {
  open,
  goto: async ({ url }) => (await page.goto(url))?.status() ?? 0,
  click: async ({ role, name, within_text }) => {
    const all = within_text ? page.locator("li, tr, article, section, form").filter({ hasText: within_text }) : page;
    const part = within_text ? all.last() : page;
    await part.getByRole(role, { name, exact: false }).first().click();
  },
  press: ({ key }) => page.keyboard.press(key),
  type: ({ text }) => page.keyboard.type(text),
  // The text is on the page, and a person can see it.
  wait_for: ({ text }) => page.getByText(text).filter({ visible: true }).first().waitFor(),
  wait_for_element: ({ selector, within }) => page.locator(selector).first().waitFor({ timeout: within }),
  wait_gone: async ({ text }) => {
    await page.waitForFunction((text) => !document.body.innerText.includes(text), text);
  },
  wait_at: ({ path }) => page.waitForURL((url) => url.pathname + url.search === path),
  address: () => page.url(),
  text: () => page.locator("body").innerText(),
  count: ({ selector }) => page.locator(selector).count(),
  links: () => page.locator("a[href]").evaluateAll((links) => links.map((it) => it.getAttribute("href"))),
  focused: () => page.evaluate(focused),
  overflow: () => page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth),
  screenshot: async ({ path, full }) => {
    await page.screenshot({ path, fullPage: full });
  },
  seen: () => seen,
};

for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  let answer;
  try {
    answer = { done: (await commands[command.do](command)) ?? null };
  } catch (error) {
    answer = { failed: String(error) };
  }
  process.stdout.write(JSON.stringify(answer) + "\n");
}
await browser.close();
