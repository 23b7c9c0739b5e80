use std::os::unix::fs::PermissionsExt;

use metaclaw_settings::write_private;

use super::*;

fn home() -> (tempfile::TempDir, Home) {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::at(dir.path().join("home"));
    home.create().unwrap();
    (dir, home)
}

#[test]
fn a_home_is_its_owners_alone() {
    let (_dir, home) = home();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(home.dir()), 0o700);
    fs::write(home.config(), "old").unwrap();
    fs::set_permissions(home.config(), fs::Permissions::from_mode(0o644)).unwrap();
    write_private(&home.config(), b"new").unwrap();
    assert_eq!(mode(&home.config()), 0o600);
    assert_eq!(fs::read(home.config()).unwrap(), b"new");
}

#[test]
fn a_link_stays_a_link() {
    let (_dir, home) = home();
    let real = home.dir().join("dotfiles.yaml");
    fs::write(&real, "old").unwrap();
    std::os::unix::fs::symlink(&real, home.config()).unwrap();
    write_private(&home.config(), b"new").unwrap();
    assert!(fs::symlink_metadata(home.config()).unwrap().is_symlink());
    assert_eq!(fs::read(&real).unwrap(), b"new");
}

#[test]
fn what_cannot_be_written_leaves_nothing_behind() {
    let (_dir, home) = home();
    let folder = home.dir().join("config.yaml");
    fs::create_dir(&folder).unwrap();
    assert!(write_private(&folder, b"new").is_err());
    assert_eq!(fs::read_dir(home.dir()).unwrap().count(), 1);
}

#[test]
fn a_home_has_one_holder_and_says_which() {
    let (_dir, home) = home();
    assert_eq!(home.holder().unwrap(), None);
    let lock = home.lock("start").unwrap();
    let holder = home.holder().unwrap().unwrap();
    assert_eq!(
        (holder.pid, holder.doing.as_str()),
        (std::process::id(), "start")
    );
    let refused = home.lock("turns list").unwrap_err().to_string();
    assert!(
        refused.contains("`metaclaw start` already runs"),
        "{refused}"
    );
    drop(lock);
    assert_eq!(home.holder().unwrap(), None);
    home.lock("turns list").unwrap();
}

#[test]
fn all_that_lies_in_a_home_is_its_own() {
    let (_dir, home) = home();
    let paths = [
        home.auth_profiles(),
        home.calendar_token(),
        home.cloud_spend(),
        home.config(),
        home.learning(),
        home.log_file(),
        home.memory(),
        home.off(),
        home.off_record(),
        home.page_key(),
        home.programs(),
        home.replay(),
        home.reports(),
        home.rollouts(),
        home.run_path(),
        home.scheduler_state(),
        home.skills(),
        home.spend(),
        home.trainer(),
        home.turns(),
        home.wiring(),
    ];
    for path in &paths {
        fs::write(path, "").unwrap();
    }
    fs::write(home.dir().join("notes.txt"), "").unwrap();
    let names = home.own_entries().unwrap();
    assert_eq!(names.len(), paths.len(), "{names:?}");
}

#[test]
fn a_run_file_comes_back_and_hides_its_token() {
    let (_dir, home) = home();
    assert_eq!(home.run_file().unwrap(), None);
    let run = RunFile {
        page: None,
        pid: 7,
        control: "127.0.0.1:1".parse().unwrap(),
        token: "0123456789abcdef".to_owned(),
        base_url: "http://127.0.0.1:2/v1".to_owned(),
        started_ms: 3,
        version: "0.1.0".to_owned(),
        settings: None,
    };
    home.publish(&run).unwrap();
    assert_eq!(home.run_file().unwrap().as_ref(), Some(&run));
    assert!(!format!("{run:?}").contains("0123"));
    fs::write(home.dir().join("run.json"), "{").unwrap();
    assert!(
        home.run_file()
            .unwrap_err()
            .to_string()
            .contains("run.json")
    );
    home.retract().unwrap();
    home.retract().unwrap();
}

#[test]
fn clients_get_whole_addresses() {
    for (listens, told) in [
        ("127.0.0.1:30000", "http://127.0.0.1:30000"),
        ("0.0.0.0:30000", "http://127.0.0.1:30000"),
        ("[::1]:8080", "http://[::1]:8080"),
    ] {
        assert_eq!(origin(listens.parse().unwrap()), told);
    }
}
