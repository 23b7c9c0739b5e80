//! Tests with a real X server and a real compositor, which show no window:
//! `cargo nextest run -p metaclaw-schedule --features display-tests` with Xvfb, xkbcomp and kwin_wayland (5.27 or
//! later) installed.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
};

use super::*;

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[test]
fn an_x_server_tells_when_it_was_touched() {
    let mut child = Command::new("Xvfb")
        .args([
            "-displayfd",
            "1",
            "-nolisten",
            "tcp",
            "-screen",
            "0",
            "64x64x24",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut number = String::new();
    let stdout = child.stdout.take().unwrap();
    let server = Server(child);
    BufReader::new(stdout).read_line(&mut number).unwrap();
    let display = format!(":{}", number.trim());
    let displays = Displays {
        wayland: None,
        x11: Some(display.clone()),
    };
    let mut source = None;
    let touched = |source: &mut Option<Source>| match look(source, &displays, IDLE) {
        Keyboard::Touched { source, at_ms } if source == "X11" => at_ms,
        other => panic!("{other:?}"),
    };
    let first = touched(&mut source);
    assert!(now_ms().abs_diff(first) < 60_000, "it has just begun");
    // Time passes without any input.
    while now_ms() < first + 1_200 {
        assert!(touched(&mut source).abs_diff(first) < 100);
    }
    // A key is pressed.
    press(&display);
    assert!(touched(&mut source) > first + 1_000);
    drop(server);
    assert!(matches!(
        look(&mut source, &displays, IDLE),
        Keyboard::Silent { .. }
    ));
}

/// The display has no screen: KWin renders nowhere, and supports ext-idle-notify.
#[test]
fn a_compositor_tells_when_its_owner_is_away() {
    let folder = tempfile::tempdir().unwrap();
    let child = Command::new("kwin_wayland")
        .args(["--virtual", "--no-lockscreen", "--socket", "wayland-test"])
        .env("XDG_RUNTIME_DIR", folder.path())
        .env("KWIN_COMPOSE", "Q")
        .env_remove("DISPLAY")
        .env_remove("WAYLAND_DISPLAY")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let server = Server(child);
    let displays = Displays {
        wayland: Some(folder.path().join("wayland-test")),
        x11: None,
    };
    let idle = Duration::from_secs(2);
    let mut source = None;
    // The compositor takes a moment to start.
    let begun = loop {
        match look(&mut source, &displays, idle) {
            Keyboard::Touched { source, at_ms } if source == "Wayland" => break at_ms,
            Keyboard::Silent { .. } => thread::yield_now(),
            other => panic!("{other:?}"),
        }
    };
    let mut touched = || match look(&mut source, &displays, idle) {
        Keyboard::Touched { at_ms, .. } => at_ms,
        other => panic!("{other:?}"),
    };
    // The state is "in use" until the compositor reports idleness after the requested time.
    while now_ms() < begun + 1_500 {
        assert!(touched().abs_diff(now_ms()) < 500);
    }
    while touched() + 2_000 > now_ms() {
        assert!(now_ms() < begun + 60_000, "it never says so");
    }
    assert!(touched() >= begun);
    drop(server);
    let gone = look(&mut source, &displays, idle);
    assert!(matches!(gone, Keyboard::Silent { .. }), "{gone:?}");
}

/// Presses a key through the test extension.
fn press(display: &str) {
    use x11rb::{connection::Connection as _, protocol::xtest::ConnectionExt as _};
    let (connection, _) = x11rb::rust_connection::RustConnection::connect(Some(display)).unwrap();
    for kind in [2, 3] {
        let sent = connection.xtest_fake_input(kind, 38, 0, x11rb::NONE, 0, 0, 0);
        sent.unwrap().check().unwrap();
    }
    connection.flush().unwrap();
}
