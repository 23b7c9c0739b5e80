//! Checks when the owner's keyboard and mouse were last touched, if there is a display.
//!
//! The sources are tried in this order: Wayland (ext-idle-notify), X11 (the MIT-SCREEN-SAVER extension), and logind's
//! IdleHint. logind is for a service without display variables, and for desktops without the other two. On macOS the
//! source is `ioreg`. In a Wayland session an X server sees only its own windows, so it is not used there.

mod ioreg;
mod logind;
mod program;
mod wayland;
mod x11;

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use metaclaw_chat::{now_ms, whole_ms};

use self::{wayland::Wayland, x11::X11};
use crate::facts::Keyboard;

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

/// The source of keyboard activity.
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
            let source = name.to_owned();
            Keyboard::Silent { source, why }
        }
    }
}

// === impl Source ===

impl Source {
    /// Opens the first source that exists. If one exists but fails, the error is reported. The exception is a
    /// compositor without ext-idle-notify, because logind may know about its desktop.
    fn open(displays: &Displays, idle: Duration) -> Result<Self, (&'static str, String)> {
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

    /// Returns how long nothing was touched, or `None` if there is no display.
    fn idle_for(&mut self) -> Result<Option<Duration>, String> {
        match self {
            Self::Wayland(wayland) => wayland.idle_for().map(Some),
            Self::X11(x11) => x11.idle_for().map(Some),
            Self::Mac => ioreg::idle_for().map(Some),
            Self::Logind => Ok(logind::idle_for(now_ms())),
        }
    }
}

#[cfg(test)]
mod tests;
