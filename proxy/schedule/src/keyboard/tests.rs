use super::*;

#[cfg(feature = "display-tests")]
mod displays;

const IDLE: Duration = Duration::from_secs(1_800);

#[test]
fn displays_are_found_in_the_environment() {
    let displays = |pairs: &[(&str, &'static str)]| {
        let get = |name: &str| pairs.iter().find(|(it, _)| *it == name).map(|(_, it)| *it);
        Displays::new(get)
    };
    assert_eq!(displays(&[]), Displays::default());
    let both = displays(&[
        ("XDG_RUNTIME_DIR", "/run/user/1000"),
        ("WAYLAND_DISPLAY", "wayland-0"),
        ("DISPLAY", ":0"),
    ]);
    let socket = PathBuf::from("/run/user/1000/wayland-0");
    assert_eq!(both.wayland, Some(socket));
    assert_eq!(both.x11.as_deref(), Some(":0"));
    let absolute = displays(&[("WAYLAND_DISPLAY", "/tmp/socket")]);
    assert_eq!(absolute.wayland, Some(PathBuf::from("/tmp/socket")));
}

#[test]
fn a_display_that_is_not_there_is_said_to_be_silent() {
    let folder = tempfile::tempdir().unwrap();
    let wayland = Displays {
        wayland: Some(folder.path().join("none")),
        // X11 is not used, because Xwayland sees only its own windows.
        x11: Some(":0".to_owned()),
    };
    let x11 = Displays {
        wayland: None,
        x11: Some("unix:64999".to_owned()),
    };
    for (displays, name) in [(wayland, "Wayland"), (x11, "X11")] {
        let mut opened = None;
        let keyboard = look(&mut opened, &displays, IDLE);
        let is_so = matches!(&keyboard, Keyboard::Silent { source,.. } if source == name);
        assert!(is_so, "{keyboard:?}");
        assert!(opened.is_none());
    }
}

#[test]
fn a_watch_tells_what_it_saw() {
    let displays = Displays {
        wayland: None,
        x11: Some("unix:64999".to_owned()),
    };
    let watch = KeyboardWatch::start(displays, IDLE).unwrap();
    while watch.latest() == Keyboard::Unread {
        thread::yield_now();
    }
    assert!(matches!(watch.latest(), Keyboard::Silent { .. }));
}
