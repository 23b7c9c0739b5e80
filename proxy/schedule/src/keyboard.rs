//! Checks when the owner's keyboard and mouse were last touched, if there is a display.
//!
//! The sources are tried in this order: Wayland, X11, and logind's IdleHint. logind is for a service without display
//! variables, and for desktops without the other two. In a Wayland session an X server sees only its own windows, so it is
//! not used there.
//!
//! - Wayland (ext-idle-notify-v1): a compositor reports when its seats were idle for a given time, and when that ends. By
//!   the protocol's own rule, a film that keeps the screen awake is not idle time.
//! - X11: the MIT-SCREEN-SAVER extension counts the milliseconds since the last input.
//! - logind: desktops report to it when their owner is idle, after a delay of their own choice.
//! - macOS: `ioreg` shows nanoseconds since the last touch of any input device. This code was written from recorded output
//!   and was never built or run on a Mac.

#[cfg(test)]
mod tests;

use std::{
    error::Error,
    io,
    os::{fd::AsFd as _, unix::net::UnixStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use metaclaw_chat::{now_ms, whole_ms};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use wayland_client::{
    Connection, Dispatch, EventQueue, Proxy, QueueHandle, delegate_noop,
    globals::{GlobalListContents, registry_queue_init},
    protocol::{wl_registry::WlRegistry, wl_seat::WlSeat},
};
use wayland_protocols::ext::idle_notify::v1::client::{
    ext_idle_notification_v1::{Event, ExtIdleNotificationV1},
    ext_idle_notifier_v1::ExtIdleNotifierV1,
};
use x11rb::{
    connection::Connection as _,
    protocol::{screensaver::ConnectionExt as _, xproto::Window},
    rust_connection::RustConnection,
};

use crate::decision::Keyboard;

const EVERY: Duration = Duration::from_secs(20);
/// An older check has no meaning, because its display hangs.
const STALE: Duration = Duration::from_secs(120);

/// Where displays may be, according to the environment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Displays {
    /// The socket that `WAYLAND_DISPLAY` names, below `XDG_RUNTIME_DIR`.
    pub wayland: Option<PathBuf>,
    /// `DISPLAY`.
    pub x11: Option<String>,
}

/// Checks the keyboard regularly on a separate thread, so that a display that hangs blocks nothing else. The thread
/// ends when this is dropped.
#[derive(Debug)]
pub struct KeyboardWatch {
    /// The last result, and when it came: by a clock that nobody sets.
    seen: Arc<Mutex<(Instant, Keyboard)>>,
    /// Dropping it ends the thread.
    _alive: mpsc::Sender<()>,
}

type SourceError = Box<dyn Error + Send + Sync>;

#[derive(Debug)]
enum Source {
    Wayland(Box<Wayland>),
    X11(Box<X11>),
    Mac,
    Logind,
}

// === impl Displays ===

impl Displays {
    /// Reads the variables of the environment.
    pub fn new<'a>(get: impl Fn(&str) -> Option<&'a str>) -> Self {
        let socket = || {
            // An absolute path is used as it is.
            let folder = PathBuf::from(get("XDG_RUNTIME_DIR").unwrap_or("/"));
            Some(folder.join(get("WAYLAND_DISPLAY")?))
        };
        Self {
            wayland: socket(),
            x11: get("DISPLAY").map(str::to_owned),
        }
    }
}

// === impl KeyboardWatch ===

impl KeyboardWatch {
    /// Starts the thread. `idle` is how long the owner must be inactive to count as away.
    ///
    /// # Errors
    /// Returns the system's error if the thread cannot be started.
    pub fn start(displays: Displays, idle: Duration) -> std::io::Result<Self> {
        let seen = Arc::new(Mutex::new((Instant::now(), Keyboard::Unread)));
        let (alive, ended) = mpsc::channel::<()>();
        let told = Arc::clone(&seen);
        thread::Builder::new()
            .name("keyboard".to_owned())
            .spawn(move || {
                let mut source = None;
                loop {
                    let keyboard = look(&mut source, &displays, idle);
                    *told.lock().unwrap_or_else(PoisonError::into_inner) =
                        (Instant::now(), keyboard);
                    if ended.recv_timeout(EVERY) != Err(RecvTimeoutError::Timeout) {
                        return;
                    }
                }
            })?;
        Ok(Self {
            seen,
            _alive: alive,
        })
    }

    /// Returns the result of the last check.
    pub fn latest(&self) -> Keyboard {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, keyboard) = &*seen;
        if at.elapsed() < STALE {
            return keyboard.clone();
        }
        Keyboard::Silent {
            source: "the display".to_owned(),
            why: "it does not answer".to_owned(),
        }
    }
}

/// Makes one check. A source that fails is opened again the next time.
fn look(source: &mut Option<Source>, displays: &Displays, idle: Duration) -> Keyboard {
    let opened = match source.take() {
        Some(opened) => Ok(opened),
        None => Source::open(displays, idle),
    };
    let (name, result) = match opened {
        Ok(mut opened) => {
            let name = opened.name();
            let result = opened.idle_for();
            if result.is_ok() {
                *source = Some(opened);
            }
            (name, result)
        }
        Err((name, why)) => (name, Err(why)),
    };
    match result {
        Ok(Some(idle)) => {
            let at_ms = now_ms().saturating_sub(whole_ms(idle));
            let source = name.to_owned();
            Keyboard::Touched { source, at_ms }
        }
        Ok(None) => Keyboard::Headless,
        Err(why) => {
            let (source, why) = (name.to_owned(), why.to_string());
            Keyboard::Silent { source, why }
        }
    }
}

// === impl Source ===

impl Source {
    /// Opens the first source that exists. If one exists but fails, the error is reported. The exception is a
    /// compositor without ext-idle-notify, because logind may know about its desktop.
    fn open(displays: &Displays, idle: Duration) -> Result<Self, (&'static str, SourceError)> {
        if cfg!(target_os = "macos") {
            return Ok(Self::Mac);
        }
        match (&displays.wayland, &displays.x11) {
            (Some(socket), _) => match Wayland::open(socket, idle) {
                Ok(Some(wayland)) => Ok(Self::Wayland(Box::new(wayland))),
                Ok(None) => Ok(Self::Logind),
                Err(why) => Err(("Wayland", why)),
            },
            (None, Some(display)) => match X11::open(display) {
                Ok(x11) => Ok(Self::X11(Box::new(x11))),
                Err(why) => Err(("X11", why)),
            },
            (None, None) => Ok(Self::Logind),
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Wayland(_) => "Wayland",
            Self::X11(_) => "X11",
            Self::Mac => "macOS",
            Self::Logind => "logind",
        }
    }

    fn idle_for(&mut self) -> Result<Option<Duration>, SourceError> {
        match self {
            Self::Wayland(wayland) => wayland.idle_for().map(Some),
            Self::X11(x11) => x11.idle_for().map(Some),
            Self::Mac => ioreg_idle().map(Some),
            Self::Logind => Ok(logind_idle(now_ms())),
        }
    }
}

const MAX_OUTPUT: usize = 1 << 20;

pub(super) fn output(program: &str, arguments: &[&str]) -> Result<Option<String>, SourceError> {
    let run = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output();
    match run {
        Ok(run) if run.status.success() => {
            let text = &run.stdout[..run.stdout.len().min(MAX_OUTPUT)];
            Ok(Some(String::from_utf8_lossy(text).into_owned()))
        }
        Ok(run) => Err(format!("{program} ended with {}", run.status).into()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{program}: {error}").into()),
    }
}

/// Returns how long the owner's desktop has been idle, or `None` if there is no desktop or no logind.
pub(super) fn logind_idle(now_ms: u64) -> Option<Duration> {
    let user = rustix::process::getuid().as_raw().to_string();
    let asked = ["Display", "IdleHint", "IdleSinceHint"].map(|name| format!("--property={name}"));
    let asked: Vec<&str> = asked.iter().map(String::as_str).collect();
    // It fails for a user who is not logged in, and in a container without logind.
    let told = output("loginctl", &[&["show-user", &user], &asked[..]].concat());
    told.ok()
        .flatten()
        .and_then(|text| parse_logind(&text, now_ms))
}

/// Parses lines such as `IdleHint=yes`. `Display` names the desktop's session, and is empty without one.
fn parse_logind(text: &str, now_ms: u64) -> Option<Duration> {
    let value = |name: &str| {
        let mut values = text.lines().filter_map(|line| line.split_once('='));
        values.find_map(|(key, value)| (key == name).then_some(value.trim()))
    };
    value("Display").filter(|session| !session.is_empty())?;
    if value("IdleHint") != Some("yes") {
        return Some(Duration::ZERO);
    }
    // The value is in microseconds.
    let since_ms = value("IdleSinceHint")?.parse::<u64>().ok()? / 1_000;
    Some(Duration::from_millis(now_ms.saturating_sub(since_ms)))
}

pub(super) fn ioreg_idle() -> Result<Duration, SourceError> {
    let told = output("ioreg", &["-c", "IOHIDSystem", "-d", "4"])?.ok_or("there is no ioreg")?;
    parse_ioreg(&told).ok_or_else(|| "ioreg tells no HIDIdleTime".into())
}

/// Returns the shortest `"HIDIdleTime" = 1234` in the output of `ioreg`.
fn parse_ioreg(text: &str) -> Option<Duration> {
    let values = text.lines().filter_map(|line| {
        let (_, value) = line.split_once("\"HIDIdleTime\" = ")?;
        value.trim().parse().ok()
    });
    values.min().map(Duration::from_nanos)
}

#[derive(Debug)]
pub(super) struct X11 {
    connection: RustConnection,
    root: Window,
}

// === impl X11 ===

impl X11 {
    /// Connects to `display`, for example `:0`, with the cookie of the owner's `.Xauthority`.
    pub(super) fn open(display: &str) -> Result<Self, SourceError> {
        let opened = RustConnection::connect(Some(display));
        let (connection, screen) = opened.map_err(|error| format!("{display}: {error}"))?;
        let screen = connection.setup().roots.get(screen);
        let root = screen.ok_or("it has no screen")?.root;
        Ok(Self { connection, root })
    }

    pub(super) fn idle_for(&mut self) -> Result<Duration, SourceError> {
        let asked = self.connection.screensaver_query_info(self.root)?;
        let idle_ms = asked.reply()?.ms_since_user_input;
        Ok(Duration::from_millis(idle_ms.into()))
    }
}

#[derive(Debug)]
pub(super) struct Wayland {
    connection: Connection,
    queue: EventQueue<Seats>,
    seats: Seats,
}

#[derive(Debug)]
struct Seats {
    timeout: Duration,
    /// For each seat, since when it has been idle, or none if it is in use.
    idle_since: Vec<Option<Instant>>,
}

// === impl Wayland ===

impl Wayland {
    /// Connects to the compositor at `socket`, and requests a report after `idle`. Returns `None` if it has no
    /// ext-idle-notify, or no seat.
    pub(super) fn open(socket: &Path, idle: Duration) -> Result<Option<Self>, SourceError> {
        let stream = UnixStream::connect(socket)
            .map_err(|error| format!("{}: {error}", socket.display()))?;
        let connection = Connection::from_socket(stream)?;
        let (globals, mut queue) = registry_queue_init::<Seats>(&connection)?;
        let handle = queue.handle();
        let Ok(notifier) = globals.bind::<ExtIdleNotifierV1, _, _>(&handle, 1..=1, ()) else {
            return Ok(None);
        };
        let timeout_ms = u32::try_from(idle.as_millis()).unwrap_or(u32::MAX);
        let all = globals.contents().clone_list();
        let seats = all
            .iter()
            .filter(|global| global.interface == WlSeat::interface().name);
        let mut idle_since = Vec::new();
        for seat in seats {
            let seat = globals.registry().bind(seat.name, 1, &handle, ());
            notifier.get_idle_notification(timeout_ms, &seat, &handle, idle_since.len());
            idle_since.push(None);
        }
        if idle_since.is_empty() {
            return Ok(None);
        }
        let mut seats = Seats {
            timeout: Duration::from_millis(timeout_ms.into()),
            idle_since,
        };
        queue.roundtrip(&mut seats)?;
        Ok(Some(Self {
            connection,
            queue,
            seats,
        }))
    }

    /// Returns how long no seat was touched. It is zero until the compositor reports that all are idle.
    pub(super) fn idle_for(&mut self) -> Result<Duration, SourceError> {
        self.hear()
            .map_err(|error| format!("the compositor: {error}"))?;
        let idle = self.seats.idle_since.iter().map(|since| match since {
            Some(since) => self.seats.timeout + since.elapsed(),
            None => Duration::ZERO,
        });
        Ok(idle.min().unwrap_or_default())
    }

    fn hear(&mut self) -> Result<(), SourceError> {
        loop {
            self.queue.dispatch_pending(&mut self.seats)?;
            self.queue.flush()?;
            let Some(reading) = self.queue.prepare_read() else {
                continue;
            };
            let socket = self.connection.as_fd();
            let mut ready = [PollFd::new(&socket, PollFlags::IN)];
            if poll(&mut ready, Some(&Timespec::default()))? == 0 {
                return Ok(());
            }
            reading.read()?;
        }
    }
}

// === impl Seats ===

impl Dispatch<ExtIdleNotificationV1, usize> for Seats {
    fn event(
        seats: &mut Self,
        _: &ExtIdleNotificationV1,
        event: Event,
        seat: &usize,
        _: &Connection,
        _: &QueueHandle<Self>,
    ) {
        let since = match event {
            Event::Idled => Some(Instant::now()),
            _ => None,
        };
        if let Some(noted) = seats.idle_since.get_mut(*seat) {
            *noted = since;
        }
    }
}

impl Dispatch<WlRegistry, GlobalListContents> for Seats {
    fn event(
        _: &mut Self,
        _: &WlRegistry,
        _: <WlRegistry as Proxy>::Event,
        _: &GlobalListContents,
        _: &Connection,
        _: &QueueHandle<Self>,
    ) {
        // Seats that are added later are not watched until the next start.
    }
}

delegate_noop!(Seats: ignore WlSeat);
delegate_noop!(Seats: ExtIdleNotifierV1);

#[cfg(test)]
mod logind_tests {
    use super::*;

    const NOW: u64 = 1_700_000_600_000;

    #[test]
    fn an_idle_desktop_is_told_from_one_in_use_and_from_none() {
        let idle = "Display=2\nIdleHint=yes\nIdleSinceHint=1700000000000000\n";
        assert_eq!(parse_logind(idle, NOW), Some(Duration::from_secs(600)));
        let in_use = "Display=2\nIdleHint=no\nIdleSinceHint=1700000000000000\n";
        assert_eq!(parse_logind(in_use, NOW), Some(Duration::ZERO));
        // Somebody is logged in by SSH.
        assert_eq!(
            parse_logind("Display=\nIdleHint=no\nIdleSinceHint=0\n", NOW),
            None
        );
        assert_eq!(parse_logind("", NOW), None);
    }

    #[test]
    fn the_idle_time_is_found_in_what_ioreg_prints() {
        let recorded = r#"
+-o Root  <class IORegistryEntry, id 0x100000100, retain 31>
  +-o MacBookPro18,3  <class IOPlatformExpertDevice, id 0x100000224, registered, matched, active, busy 0 (45219 ms), retain 39>
    +-o IOResources  <class IOResources, id 0x100000115, registered, matched, active, busy 0 (1290 ms), retain 207>
      +-o IOHIDSystem  <class IOHIDSystem, id 0x10000045c, registered, matched, active, busy 0 (28 ms), retain 27>
          {
            "IOClass" = "IOHIDSystem"
            "HIDServiceGlobalModifiersUsage" = 1
            "HIDParameters" = {"HIDClickTime"=500000000,"HIDIdleTimeDelta"=7,"HIDKeyRepeat"=83333333}
            "HIDIdleTime" = 4837260125
            "IOProviderClass" = "IOResources"
          }
"#;
        assert_eq!(
            parse_ioreg(recorded),
            Some(Duration::from_nanos(4_837_260_125))
        );
        assert_eq!(parse_ioreg("\"HIDIdleTime\" = soon"), None);
        assert_eq!(parse_ioreg(""), None);
    }
}
