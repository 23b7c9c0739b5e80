//! Chromium without a window, driven through a script of ours that Node runs: it opens pages, clicks, presses keys and
//! reads what a person would see. Every wait has a limit.

use std::{path::Path, process::Stdio, time::Duration};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
};

use crate::external::{self, ChromiumPlaces};

const DRIVER: &str = include_str!("browser.mjs");
/// How long a click or a wait may take, unless it says otherwise. On a busy machine a page takes seconds.
const WITHIN: Duration = Duration::from_secs(20);

/// A browser with one page; it ends when dropped.
pub struct Browser {
    _child: Child,
    commands: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    _script: TempDir,
}

/// The window that a page is drawn in.
#[derive(Debug, Clone, Copy)]
pub struct BrowserWindow {
    /// In CSS pixels, as the height.
    pub width: u32,
    pub height: u32,
    pub dark: bool,
}

/// What a page did since its window was opened.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct PageActivity {
    /// Errors and warnings in the console, errors of scripts, and dialogs.
    pub complaints: Vec<String>,
    /// The addresses of all requests.
    pub requests: Vec<String>,
}

/// The element that has the keyboard's focus.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Focused {
    /// The name of the element: `a`, `button`, `input`.
    pub tag: String,
    /// What a screen reader calls it.
    pub name: String,
    /// The address of a link.
    pub href: String,
}

impl BrowserWindow {
    pub const WIDE: Self = Self {
        width: 1120,
        height: 700,
        dark: false,
    };
    pub const PHONE: Self = Self {
        width: 390,
        height: 844,
        dark: false,
    };

    #[must_use]
    pub fn dark(self) -> Self {
        Self { dark: true, ..self }
    }
}

impl Browser {
    /// Starts the browser that `cargo xtask test --all` found or installed, with a window.
    ///
    /// # Panics
    /// If it does not start.
    pub async fn start(places: &ChromiumPlaces, window: BrowserWindow) -> Self {
        let started = Self::try_start(places).await;
        let mut browser = started.expect("the browser starts");
        browser.open(window).await;
        browser
    }

    async fn try_start(places: &ChromiumPlaces) -> Result<Self> {
        let script = TempDir::new()?;
        let file = script.path().join("browser.mjs");
        tokio::fs::write(&file, DRIVER).await?;
        let mut node = Command::new(external::node().join("node"));
        node.arg(&file)
            .args([&places.driver, &places.program])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        let mut child = node.spawn().context("Node starts")?;
        let commands = child.stdin.take().context("piped")?;
        let answers = child.stdout.take().context("piped")?;
        Ok(Self {
            _child: child,
            commands,
            answers: BufReader::new(answers).lines(),
            _script: script,
        })
    }

    /// Sends one command to the script; its answer.
    async fn tell(&mut self, command: &Value) -> Result<Value> {
        let line = format!("{command}\n");
        self.commands.write_all(line.as_bytes()).await?;
        let answer = self.answers.next_line().await?;
        let answer =
            answer.context("the browser's script ended: its reason is on standard error")?;
        let mut answer: Value = serde_json::from_str(&answer)?;
        if let Some(why) = answer["failed"].as_str() {
            bail!("{command}: {why}");
        }
        Ok(answer["done"].take())
    }

    /// The same for what has to work. A failure shows what stands on the page.
    async fn done(&mut self, command: Value) -> Value {
        match self.tell(&command).await {
            Ok(done) => done,
            Err(error) => {
                let page = self.tell(&json!({"do": "text"})).await;
                let at = self.tell(&json!({"do": "address"})).await;
                panic!("{error:#}\nat {at:?}: {page:?}");
            }
        }
    }

    /// Opens a new window that knows nothing of the one before.
    pub async fn open(&mut self, window: BrowserWindow) {
        let BrowserWindow {
            width,
            height,
            dark,
        } = window;
        let within = u64::try_from(WITHIN.as_millis()).expect("a short time");
        self.done(
            json!({"do": "open", "width": width, "height": height, "dark": dark,
            "within": within}),
        )
        .await;
    }

    /// Goes to an address; the reply's status.
    pub async fn goto(&mut self, url: &str) -> u64 {
        let status = self.done(json!({"do": "goto", "url": url})).await;
        status.as_u64().expect("a status")
    }

    /// Clicks the first link of this name.
    pub async fn follow(&mut self, name: &str) {
        self.done(json!({"do": "click", "role": "link", "name": name}))
            .await;
    }

    /// Clicks the first button of this name.
    pub async fn push(&mut self, name: &str) {
        self.done(json!({"do": "click", "role": "button", "name": name}))
            .await;
    }

    /// Clicks the button of this name in the row, article or form that has the text.
    pub async fn push_beside(&mut self, text: &str, name: &str) {
        self.done(json!({"do": "click", "role": "button", "name": name, "within_text": text}))
            .await;
    }

    /// Presses a key, by its name in the browser: `Tab`, `Enter`.
    pub async fn press(&mut self, key: &str) {
        self.done(json!({"do": "press", "key": key})).await;
    }

    /// Types a text where the focus is.
    pub async fn type_text(&mut self, text: &str) {
        self.done(json!({"do": "type", "text": text})).await;
    }

    /// Presses Tab until the focus is on what `is_it` accepts.
    ///
    /// # Panics
    /// If it is not among the next `most` elements.
    pub async fn tab_to(&mut self, most: usize, is_it: impl Fn(&Focused) -> bool) -> Focused {
        let mut passed = Vec::new();
        for _ in 0..most {
            self.press("Tab").await;
            let focused = self.focused().await;
            if is_it(&focused) {
                return focused;
            }
            passed.push(focused);
        }
        panic!("the keyboard does not get there: {passed:#?}");
    }

    pub async fn focused(&mut self) -> Focused {
        let focused = self.done(json!({"do": "focused"})).await;
        serde_json::from_value(focused).expect("the script's form")
    }

    /// Waits until the text can be seen.
    pub async fn wait_for(&mut self, text: &str) {
        self.done(json!({"do": "wait_for", "text": text})).await;
    }

    /// Waits until an element that matches a CSS selector can be seen.
    ///
    /// # Panics
    /// If it cannot be seen in time.
    pub async fn wait_for_element(&mut self, selector: &str, within: Duration) {
        let within = u64::try_from(within.as_millis()).expect("a short time");
        self.done(json!({"do": "wait_for_element", "selector": selector, "within": within}))
            .await;
    }

    /// Waits until the address has this path, with its query.
    pub async fn wait_at(&mut self, path: &str) {
        self.done(json!({"do": "wait_at", "path": path})).await;
    }

    /// Waits until the text is nowhere on the page.
    pub async fn wait_gone(&mut self, text: &str) {
        self.done(json!({"do": "wait_gone", "text": text})).await;
    }

    pub async fn address(&mut self) -> String {
        let address = self.done(json!({"do": "address"})).await;
        address.as_str().expect("a URL").to_owned()
    }

    /// What can be read on the page.
    pub async fn text(&mut self) -> String {
        let text = self.done(json!({"do": "text"})).await;
        text.as_str().expect("a text").to_owned()
    }

    /// How many elements match a CSS selector.
    pub async fn count(&mut self, selector: &str) -> u64 {
        let n = self
            .done(json!({"do": "count", "selector": selector}))
            .await;
        n.as_u64().expect("a number")
    }

    /// The addresses of all links, as the page has them.
    pub async fn links(&mut self) -> Vec<String> {
        let links = self.done(json!({"do": "links"})).await;
        serde_json::from_value(links).expect("the script's form")
    }

    /// By how many pixels the page is wider than its window.
    pub async fn overflow(&mut self) -> i64 {
        let overflow = self.done(json!({"do": "overflow"})).await;
        overflow.as_i64().expect("a number of pixels")
    }

    /// Keeps a picture: of the whole page, or of what the window shows.
    pub async fn screenshot(&mut self, path: &Path, full: bool) {
        self.done(json!({"do": "screenshot", "path": path, "full": full}))
            .await;
    }

    pub async fn seen(&mut self) -> PageActivity {
        let seen = self.done(json!({"do": "seen"})).await;
        serde_json::from_value(seen).expect("the script's form")
    }
}
