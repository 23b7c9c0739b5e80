//! The limits of a sandbox, each tried for real. They need bubblewrap; without it they say so and pass, unless
//! `METACLAW_TEST_BIN_DIR` says that the whole suite runs.

use metaclaw_test_kit::has;
use std::time::{Duration, Instant};

use super::{
    Exec, ExecEnd, Sandbox, SandboxBackend, SandboxChoice, SandboxError, SandboxFile,
    SandboxLimits, bubblewrap::Bubblewrap, memory_group::MemoryGroup,
};

fn limits() -> SandboxLimits {
    SandboxLimits {
        disk_mb: 16,
        memory_mb: 128,
        processes: 40,
        ..SandboxLimits::default()
    }
}

/// Ends a test on a machine without bubblewrap.
macro_rules! sandbox_or_end {
    () => {
        match sandbox().await {
            Some(sandbox) => sandbox,
            None => return,
        }
    };
}

/// Returns a sandbox of bubblewrap, or `None` on a machine that has none.
async fn sandbox() -> Option<Sandbox> {
    match Sandbox::start(SandboxChoice::Bubblewrap, &limits()).await {
        Ok(sandbox) => Some(sandbox),
        Err(error) => {
            println!("skipped: {error}");
            assert!(
                std::env::var_os("METACLAW_TEST_BIN_DIR").is_none(),
                "the whole suite needs bubblewrap: {error}"
            );
            None
        }
    }
}

async fn output(sandbox: &Sandbox, script: &str) -> String {
    let outcome = sandbox.exec(&Exec::script(script)).await.unwrap();
    outcome.text()
}

fn processes_with(word: &str) -> Vec<String> {
    let folders = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = folders.filter_map(|it| std::fs::read(it.path().join("cmdline")).ok());
    let lines = lines.map(|it| String::from_utf8_lossy(&it).replace('\0', " "));
    let own = std::env::args().next().unwrap();
    let found = lines.filter(|it| it.contains(word) && !it.starts_with(&own));
    found.collect()
}

/// Waits until no process has a word in its arguments. One that was killed takes a moment to end.
async fn until_none_has(word: &str) {
    let gone = async {
        while !processes_with(word).is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let gone = tokio::time::timeout(Duration::from_secs(10), gone).await;
    assert!(gone.is_ok(), "{:?}", processes_with(word));
}

#[tokio::test]
async fn files_and_background_programs_last_from_one_command_to_the_next() {
    let sandbox = sandbox_or_end!();
    let script = SandboxFile {
        name: "bin/hello",
        content: b"#!/bin/sh\necho hello $1",
    };
    let data = SandboxFile {
        name: "data.txt",
        content: b"one\ntwo\n",
    };
    sandbox.write_files(&[script, data]).await.unwrap();
    assert_eq!(
        output(&sandbox, "bin/hello you; wc -l < data.txt").await,
        "hello you\n2\n"
    );
    assert_eq!(
        output(&sandbox, "echo three >> data.txt; sleep 1000 & echo $!")
            .await
            .lines()
            .count(),
        1
    );
    assert_eq!(
        output(&sandbox, "wc -l < data.txt; pgrep -c sleep").await,
        "3\n1\n"
    );
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn a_command_sees_neither_this_machine_nor_a_network() {
    let sandbox = sandbox_or_end!();
    let marker = std::env::temp_dir().join("metaclaw-sandbox-marker");
    std::fs::write(&marker, "host").unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let script = format!(
        "cat {} /etc/shadow; ls /root /home; touch /usr/x /etc/x /x; id -u; ls /proc | grep -c '^[0-9]'; \
         (echo > /dev/tcp/127.0.0.1/{port}) 2>&1 | grep -o refused; env | cut -d= -f1 | sort | tr '\\n' ' '",
        marker.display()
    );
    let said = output(&sandbox, &script).await;
    std::fs::remove_file(marker).unwrap();
    for refusal in [
        "metaclaw-sandbox-marker: No such file",
        "/etc/shadow: No such file",
        "'/root': No such file",
        "'/usr/x': Read-only",
        "'/etc/x': Read-only",
        "'/x': Read-only",
    ] {
        assert!(said.contains(refusal), "{refusal} is missing in {said}");
    }
    assert!(said.contains("\n1000\n"), "{said}");
    assert!(said.contains("refused\n"), "{said}");
    assert!(
        said.ends_with("HOME LANG OLDPWD PATH PWD SHLVL _ "),
        "{said}"
    );
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn an_endless_command_ends_with_its_time_and_takes_its_children_along() {
    let sandbox = sandbox_or_end!();
    let endless = Exec::script("echo begun; setsid sleep 98761 & while :; do :; done")
        .within(Duration::from_millis(700));
    let outcome = sandbox.exec(&endless).await.unwrap();
    assert_eq!(
        (outcome.end, &*outcome.text()),
        (ExecEnd::TimedOut, "begun\n")
    );
    until_none_has("sleep 98761").await;
    assert_eq!(output(&sandbox, "echo usable").await, "usable\n");
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn a_fork_bomb_stays_in_its_sandbox_and_ends_with_it() {
    let sandbox = sandbox_or_end!();
    let bomb = "bomb98762() { sleep 98762 & bomb98762 | bomb98762 & }; bomb98762 2>/dev/null; wait";
    let outcome = sandbox
        .exec(&Exec::script(bomb).within(Duration::from_secs(3)))
        .await
        .unwrap();
    println!("{outcome:?}");
    let count = processes_with("98762").len();
    assert!(count <= 40, "{count} processes at once");
    sandbox.close().await.unwrap();
    assert_eq!(processes_with("98762"), Vec::<String>::new());
}

#[tokio::test]
async fn a_full_disk_and_too_much_memory_fail_the_command_alone() {
    let sandbox = sandbox_or_end!();
    let full = output(
        &sandbox,
        "dd if=/dev/zero of=big bs=1M count=64 2>&1 | tail -4; stat -c %s big",
    )
    .await;
    assert!(full.contains("No space left"), "{full}");
    assert_eq!(full.lines().last(), Some("16777216"), "{full}");
    let hungry = output(
        &sandbox,
        "rm big; python3 -c 'x = bytearray(1 << 30)' 2>&1 | tail -1",
    )
    .await;
    assert_eq!(hungry, "MemoryError\n");
    let told = output(&sandbox, "echo still here").await;
    assert_eq!(told, "still here\n");
    sandbox.close().await.unwrap();
}

/// Ways to take memory that no limit of one process counts. Each takes 1.5 GB, or 400,000 empty files.
const HOGS: [(&str, &str); 7] = [
    (
        "a shared mapping",
        "m = mmap.mmap(-1, 1500 << 20)\nfor i in range(0, 1500 << 20, 4096): m[i] = 1",
    ),
    (
        "many empty files",
        "for i in range(400_000): open(f'f{i}', 'w').close()",
    ),
    (
        "many empty folders and links outside the work folder",
        "for i in range(200_000): os.mkdir(f'/tmp/f{i}'); os.symlink('x', f'/dev/shm/f{i}')",
    ),
    (
        "one file in memory",
        "f = os.memfd_create('x')\nfor i in range(1500): os.write(f, b'x' * (1 << 20))",
    ),
    (
        "files in memory",
        "f = [os.memfd_create('x') for _ in range(150)]\nfor it in f:\n  for _ in range(10): os.write(it, b'x' * (1 << 20))",
    ),
    (
        "shared mappings of children",
        "for i in range(20):\n  if not os.fork():\n    m = mmap.mmap(-1, 90 << 20)\n    \
         for j in range(0, 90 << 20, 4096): m[j] = 1\n    os._exit(0)\n  \
         assert i % 4 < 3 or all(os.wait()[1] == 0 for _ in range(4))",
    ),
    (
        "shared memory that outlives its process",
        "libc = ctypes.CDLL(None)\nlibc.shmat.restype = ctypes.c_void_p\nfor i in range(15):\n  \
         ctypes.memset(libc.shmat(libc.shmget(0, 100 << 20, 0o1600), None, 0), 1, 100 << 20)",
    ),
];

async fn assert_that_hogs_fail(group: impl Fn() -> Option<MemoryGroup>, hogs: &[(&str, &str)]) {
    for (kind, hog) in hogs {
        let begun = Bubblewrap::start(&limits(), group()).await;
        let sandbox = Sandbox {
            backend: SandboxBackend::Bubblewrap(begun.unwrap()),
        };
        let program = format!("import ctypes, mmap, os\n{hog}\nprint('unbounded')");
        let exec = Exec::script("python3 -c \"$1\"").with_args(["bash", &program]);
        let outcome = sandbox.exec(&exec).await.unwrap();
        println!("{kind}: {outcome:?}");
        assert!(!outcome.succeeded(), "{kind}");
        assert!(!outcome.text().contains("unbounded"), "{kind}");
        assert!(!outcome.text().contains("SyntaxError"), "{kind}");
        sandbox.close().await.unwrap();
    }
}

#[tokio::test]
async fn all_processes_together_have_the_memory_of_their_control_group() {
    let sandbox = sandbox_or_end!();
    sandbox.close().await.unwrap();
    if MemoryGroup::new(&limits()).is_none() {
        println!("skipped: this user can make no control group that limits memory");
        return;
    }
    assert_that_hogs_fail(|| MemoryGroup::new(&limits()), &HOGS).await;
}

#[tokio::test]
async fn without_a_control_group_mappings_and_files_are_limited() {
    let sandbox = sandbox_or_end!();
    sandbox.close().await.unwrap();
    assert_that_hogs_fail(|| None, &HOGS[..4]).await;
}

#[tokio::test]
async fn endless_output_is_cut_in_its_middle() {
    let sandbox = sandbox_or_end!();
    let exec = Exec::script("seq 1 2000000; echo end").with_max_output(64);
    let said = sandbox.exec(&exec).await.unwrap().text();
    assert!(said.starts_with("1\n2\n3\n"), "{said}");
    assert!(said.ends_with("2000000\nend\n"), "{said}");
    assert!(said.contains("bytes left out]"), "{said}");
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn no_process_and_no_file_outlives_a_sandbox() {
    let sandbox = sandbox_or_end!();
    output(
        &sandbox,
        "setsid nohup sleep 98763 >/dev/null 2>&1 & kill -9 -1; true",
    )
    .await;
    let begin = "setsid nohup sleep 98763 >/dev/null 2>&1 & until pgrep -x sleep; do :; done";
    output(&sandbox, begin).await;
    assert_ne!(processes_with("sleep 98763"), Vec::<String>::new());
    let begun = Instant::now();
    sandbox.close().await.unwrap();
    assert_eq!(processes_with("sleep 98763"), Vec::<String>::new());
    assert!(begun.elapsed() < Duration::from_secs(4));
}

#[tokio::test]
async fn without_a_sandbox_commands_run_in_a_folder_that_goes_away() {
    let sandbox = Sandbox::start(SandboxChoice::None, &limits())
        .await
        .unwrap();
    let SandboxBackend::Folder(place) = &sandbox.backend else {
        panic!("{sandbox:?}");
    };
    let folder = place.path().to_owned();
    let said = output(&sandbox, "echo x > a; pwd; sleep 98764 & ls").await;
    assert_eq!(said, format!("{}\na\n", folder.display()));
    until_none_has("sleep 98764").await;
    for leave in [
        "setsid sleep 98768 & true",
        "setsid nohup sleep 98768 > /dev/null 2>&1 & disown",
        "(setsid sh -c 'sleep 98768 & sleep 98768' > /dev/null 2>&1 &)",
        "cd /; setsid sleep 98768 > /dev/null 2>&1 &",
        "env -i setsid sleep 98768 > /dev/null 2>&1 &",
        "for i in 1 2 3; do setsid setsid sleep 98768 > /dev/null 2>&1 & done; kill $$",
    ] {
        output(&sandbox, leave).await;
        until_none_has("sleep 98768").await;
    }
    sandbox.close().await.unwrap();
    assert!(!folder.exists());
}

#[tokio::test]
async fn a_command_that_nobody_waits_for_ends_with_its_children() {
    let sandbox = Sandbox::start(SandboxChoice::None, &limits())
        .await
        .unwrap();
    let endless = Exec::script("sleep 98767 & sleep 98767; true");
    let begun = async {
        let is_child = |it: &String| it.starts_with("sleep");
        while processes_with("sleep 98767")
            .iter()
            .filter(|it| is_child(it))
            .count()
            < 2
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        ended = sandbox.exec(&endless) => panic!("{ended:?}"),
        () = begun => {}
    }
    until_none_has("sleep 98767").await;
}

#[tokio::test]
async fn a_file_outside_the_work_folder_is_refused() {
    let sandbox = Sandbox::start(SandboxChoice::None, &limits())
        .await
        .unwrap();
    for name in ["/etc/x", "../x", "a/../../x", ""] {
        let content = b"x";
        let error = sandbox.write_files(&[SandboxFile { name, content }]).await;
        let error = error.unwrap_err();
        assert!(matches!(error, SandboxError::FileName { .. }), "{error}");
    }
}

/// It needs podman or docker, and the name of an image that they have, in `METACLAW_TEST_IMAGE`.
#[tokio::test]
async fn a_container_has_the_same_limits() {
    let Some(image) = std::env::var_os("METACLAW_TEST_IMAGE") else {
        println!("skipped: METACLAW_TEST_IMAGE names no image");
        return;
    };
    let limits = SandboxLimits {
        image: Some(image.into_string().unwrap()),
        ..limits()
    };
    let sandbox = Sandbox::start(SandboxChoice::Auto, &limits).await.unwrap();
    let file = SandboxFile {
        name: "in/hello",
        content: b"#!/bin/bash\necho hello",
    };
    sandbox.write_files(&[file]).await.unwrap();
    assert_eq!(
        output(&sandbox, "in/hello; id -u; pwd").await,
        "hello\n1000\n/work\n"
    );
    let said = output(&sandbox, "touch /usr/x; echo > /dev/tcp/1.1.1.1/53").await;
    has(&said, ["Read-only", "unreachable"]);
    let full = output(&sandbox, "head -c 30M /dev/zero > big; rm big").await;
    assert!(full.contains("No space left"), "{full}");
    let endless = Exec::script("setsid sleep 98765 & while :; do :; done");
    let outcome = sandbox
        .exec(&endless.within(Duration::from_secs(1)))
        .await
        .unwrap();
    assert_eq!(outcome.end, ExecEnd::TimedOut);
    until_none_has("sleep 98765").await;
    let bomb = "bomb98766() { sleep 98766 & bomb98766 | bomb98766 & }; bomb98766 2>/dev/null; wait";
    let bomb = Exec::script(bomb).within(Duration::from_secs(3));
    sandbox.exec(&bomb).await.unwrap();
    assert!(processes_with("98766").len() <= 42);
    sandbox.close().await.unwrap();
    assert_eq!(processes_with("98766"), Vec::<String>::new());
}

#[tokio::test]
async fn a_limit_of_nothing_is_refused() {
    for (limits, field) in [
        (
            SandboxLimits {
                disk_mb: 0,
                ..limits()
            },
            "disk_mb",
        ),
        (
            SandboxLimits {
                memory_mb: 0,
                ..limits()
            },
            "memory_mb",
        ),
        (
            SandboxLimits {
                processes: 0,
                ..limits()
            },
            "processes",
        ),
    ] {
        let refused = Sandbox::start(SandboxChoice::Auto, &limits).await;
        let expected = format!("sandbox.{field} 0 is not allowed: use a number from 1");
        assert_eq!(refused.unwrap_err().to_string(), expected);
    }
}
