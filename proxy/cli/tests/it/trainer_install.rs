//! Tests of `metaclaw trainer install`, with archives that contain a shell script in place of the training server.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Output,
};

use metaclaw_fetch::{Packed, pack, sha256_of};

use crate::harness::{Home, Reply, Server, has, until};

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The script prints its version; otherwise it records that it was started, and lives until its stdin closes.
const GOOD: &str = "case \"$1\" in --version) echo metaclaw-trainer VERSION;; \
                    *) echo \"$0\" > \"$NOTE_OF_TRAINER\"; cat > /dev/null;; esac";
const SETTINGS: &str = "mode: rl\nproxy: {port: 0}\ntrainer: {model: model.gguf}\n";

fn archive(home: &Home, folder: &str, script: &str) -> PathBuf {
    let script = script.replace("VERSION", VERSION);
    packed(
        home,
        folder,
        "metaclaw-trainer",
        &format!("#!/bin/sh\n{script}\n"),
    )
}

/// An archive with one program, and one with an additional megabyte.
fn packed(home: &Home, folder: &str, name: &str, text: &str) -> PathBuf {
    let folder = home.path().join(folder);
    fs::create_dir_all(&folder).unwrap();
    let (program, ballast) = (folder.join("program"), folder.join("ballast"));
    fs::write(&program, text).unwrap();
    fs::write(&ballast, vec![0; 1 << 20]).unwrap();
    let to = folder.join(format!("metaclaw-trainer-{VERSION}-x86_64-linux.tar.gz"));
    let file = |from: PathBuf, name: &str, is_program| Packed {
        from,
        name: name.to_owned(),
        is_program,
    };
    let files = [
        file(program, name, true),
        file(ballast, "lib/libtorch_cpu.so", false),
    ];
    pack("metaclaw-trainer-x", &files, &to).unwrap();
    to
}

fn list(archive: &Path, sum: Option<&str>) {
    let sum = match sum {
        Some(sum) => sum.to_owned(),
        None => sha256_of(archive).unwrap(),
    };
    let name = archive.file_name().unwrap_or_default().to_string_lossy();
    fs::write(
        archive.with_file_name("SHA256SUMS"),
        format!("{sum}  {name}\n"),
    )
    .unwrap();
}

async fn install(home: &Home, archive: &Path) -> String {
    let from = archive.to_string_lossy();
    home.ask(&["trainer", "install", "--from", &from]).await
}

async fn refused(home: &Home, archive: &Path) -> String {
    let from = archive.to_string_lossy();
    home.refusal(&["trainer", "install", "--from", &from]).await
}

fn programs(home: &Home) -> Vec<String> {
    let entries = fs::read_dir(home.path().join("programs"))
        .into_iter()
        .flatten();
    let names = entries.flatten().map(|it| it.file_name());
    let mut names: Vec<_> = names.map(|it| it.to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn what_was_installed_is_started_and_can_be_taken_away() {
    let home = Home::new(SETTINGS).by_itself();
    let note = home.path().join("note");
    let home = home.with_variable("NOTE_OF_TRAINER", &note);
    home.write("model.gguf", "");
    let none = home.run(&["trainer", "status"]).await;
    let said = String::from_utf8_lossy(&none.stdout);
    assert!(
        !none.status.success() && said.contains("no training server"),
        "{said}"
    );

    let archive = archive(&home, "release", GOOD);
    let said = home.neutral(&install(&home, &archive).await);
    insta::assert_snapshot!(said, @r"
    unpacking HOME/release/metaclaw-trainer-0.1.0-x86_64-linux.tar.gz
    metaclaw-trainer 0.1.0 is installed in HOME/programs/trainer (no SHA256SUMS lies beside the archive, so its checksum was compared with none)
    `metaclaw start` uses it from now on
    ");
    // `--cuda` makes this folder; an owner who had a libtorch with CUDA keeps it.
    let cuda = home.path().join("cuda/lib");
    fs::create_dir_all(&cuda).unwrap();
    let link = home.path().join("programs/trainer/lib-cuda");
    std::os::unix::fs::symlink(&cuda, &link).unwrap();
    list(&archive, None);
    let said = install(&home, &archive).await;
    assert!(said.contains("release/SHA256SUMS"), "{said}");
    assert_eq!(programs(&home), ["lock", "metaclaw-trainer-1", "trainer"]);
    assert_eq!(fs::read_link(&link).unwrap(), cuda);

    let status = home.ask(&["trainer", "status"]).await;
    insta::assert_snapshot!(home.neutral(&status), @r"
    program   HOME/programs/trainer/metaclaw-trainer (installed)
    version   0.1.0
    CUDA      HOME/cuda/lib
    ");
    let proxy = home.start().await;
    let started = async || home.read("note");
    let started = until("the note", started, |it| !it.is_empty()).await;
    assert_eq!(
        home.neutral(started.trim()),
        "HOME/programs/trainer/metaclaw-trainer"
    );
    home.stop(proxy).await;

    let said = home.ask(&["trainer", "uninstall"]).await;
    assert!(said.contains("is gone from"), "{said}");
    assert!(!home.path().join("programs").exists());
    let refusal = home.refusal(&["start"]).await;
    has(&refusal, ["`metaclaw trainer install` brings it"]);
}

#[tokio::test]
async fn an_archive_that_is_not_right_is_refused_and_what_was_there_stays() {
    let home = Home::new(SETTINGS).by_itself();
    let good = archive(&home, "good", GOOD);
    install(&home, &good).await;
    let before = programs(&home);

    let whole = fs::read(&good).unwrap();
    let cut = archive(&home, "cut", GOOD);
    fs::write(&cut, &whole[..whole.len() / 2]).unwrap();
    let listed = archive(&home, "listed", GOOD);
    list(&listed, Some(&"0".repeat(64)));
    let unlisted = archive(&home, "unlisted", GOOD);
    fs::write(unlisted.with_file_name("SHA256SUMS"), "").unwrap();
    let older = archive(&home, "older", "echo metaclaw-trainer 0.0.9");
    let fails = archive(
        &home,
        "fails",
        "echo \"version GLIBC_9.99 not found\" >&2; exit 1",
    );
    let other = packed(&home, "other", "metaclaw", "#!/bin/sh\n");
    let text = home.path().join("text.tar.gz");
    fs::write(&text, "no archive").unwrap();
    let missing = home.path().join("missing.tar.gz");
    for (archive, why) in [
        (&cut, "is no whole .tar.gz archive"),
        (&listed, "says 0000"),
        (&unlisted, "it has no line for"),
        (&older, "it is metaclaw-trainer 0.0.9, and this is metaclaw"),
        (
            &fails,
            "does not run on this machine (exit status: 1): version GLIBC_9.99 not found",
        ),
        (&other, "it is another archive than the training server's"),
        (&text, "is no whole .tar.gz archive"),
        (&missing, "there is no file HOME/missing.tar.gz"),
    ] {
        let said = refused(&home, archive).await;
        assert!(said.contains(why), "{said}");
        assert_eq!(programs(&home), before, "{said}");
        home.ask(&["trainer", "status"]).await;
    }
    let from = good.to_string_lossy();
    let flags = ["trainer", "install", "--from", &from, "--sha256", "12"];
    let said = home.refusal(&flags).await;
    assert!(said.contains("64 hexadecimal digits"), "{said}");
}

#[tokio::test]
async fn without_an_address_none_is_made_up() {
    let home = Home::new(SETTINGS).by_itself();
    let said = home.refusal(&["trainer", "install"]).await;
    insta::assert_snapshot!(said, @"metaclaw: no release address is configured: give --from FILE or URL of metaclaw-trainer-0.1.0-x86_64-linux.tar.gz, or set trainer.archive to where it is (in a checkout, `cargo xtask dist` makes it)");
    let archive = archive(&home, "release", GOOD);
    let named = archive.to_string_lossy().replace(VERSION, "{version}");
    home.ask(&["config", "trainer.archive", &named]).await;
    home.ask(&["trainer", "install"]).await;
    home.ask(&["trainer", "status"]).await;
}

#[tokio::test]
async fn an_archive_at_an_address_comes_with_its_checksum() {
    let home = Home::new(SETTINGS).by_itself();
    let archive = archive(&home, "release", GOOD);
    let (url, _server) = served(&archive);
    let from = ["trainer", "install", "--from", &url];
    let said = home.refusal(&from).await;
    has(&said, ["put SHA256SUMS beside it, or give --sha256", "404"]);
    list(&archive, Some(&"1".repeat(64)));
    let said = home.refusal(&from).await;
    has(&said, ["has sha256", "removed"]);
    list(&archive, None);
    home.ask(&from).await;
    home.ask(&["trainer", "status"]).await;
    let partial = home.path().join("cache/partial");
    assert_eq!(fs::read_dir(partial).unwrap().count(), 0);
}

/// Serves the folder of an archive, with its content at the time of each request.
fn served(archive: &Path) -> (String, Server) {
    let folder = archive.parent().unwrap().to_owned();
    let server = Server::new(move |request| {
        let file = fs::read(folder.join(request.path().trim_start_matches('/')));
        file.map_or_else(|_| Reply::status(404, ""), Reply::bytes)
    });
    let name = archive.file_name().unwrap().to_string_lossy();
    (format!("{}/{name}", server.url()), server)
}

/// The disk has 1 MiB, on a mount of this test's own.
async fn on_small_disk(home: &Home, archive: &Path) -> Output {
    let script = "mount -t tmpfs -o size=1m none \"$1\" && shift && exec \"$@\"";
    let disk = home.path().join("disk");
    fs::create_dir_all(&disk).unwrap();
    let program = env!("CARGO_BIN_EXE_metaclaw");
    let mut command = tokio::process::Command::new("unshare");
    command
        .args(["--map-root-user", "--mount", "sh", "-c", script, "sh"])
        .arg(&disk)
        .args([program, "trainer", "install", "--from"])
        .arg(archive)
        .env("METACLAW_HOME", &disk)
        .env("METACLAW_CACHE", disk.join("cache"));
    command.output().await.unwrap()
}

#[tokio::test]
async fn a_disk_without_room_is_told_before_and_a_full_one_meanwhile() {
    let home = Home::new(SETTINGS).by_itself();
    let may_mount = tokio::process::Command::new("unshare")
        .args(["--map-root-user", "--mount", "true"])
        .output()
        .await;
    if !may_mount.is_ok_and(|it| it.status.success()) {
        eprintln!("not tried: this machine gives nobody a file system of his own");
        return;
    }
    let archive = archive(&home, "release", GOOD);
    let output = on_small_disk(&home, &archive).await;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{said}");
    has(
        &said,
        ["the training server needs 1.05 MB", "are free: free "],
    );
    // This archive claims to be small.
    let mut lies = fs::read(&archive).unwrap();
    let end = lies.len();
    lies[end - 4..].copy_from_slice(&[1, 0, 0, 0]);
    fs::write(&archive, lies).unwrap();
    let output = on_small_disk(&home, &archive).await;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{said}");
    has(&said, ["No space left on device", "free some space"]);
}
