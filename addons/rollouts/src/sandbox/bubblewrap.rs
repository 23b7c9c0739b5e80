//! Sandboxes of bubblewrap: namespaces of their own, which later commands enter with nsenter.

use std::{ffi::OsString, fs, os::unix::fs::PermissionsExt as _, path::Path, time::Duration};

use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;

use super::{
    error::SandboxError,
    exec::{Exec, WORK_FOLDER},
    holder::{SCRIPT, SandboxHolder},
    memory_group::MemoryGroup,
    settings::{MB, SandboxLimits, SandboxMount},
};

const PROGRAM: &str = "bubblewrap (bwrap)";
/// Limits of processes do not apply to the machine's root. So root makes its sandboxes as the user `nobody`.
const NOBODY: u32 = 65_534;
const READY: Duration = Duration::from_secs(20);
/// The files that a folder in memory may have for each MB of its size. The kernel takes up to 3 kB for an empty one.
const FILES_OF_MB: u64 = 128;
/// The folders in memory, and the names of the places where they are mounted first.
const FOLDERS: [(&str, &str); 3] = [("/dev/shm", "shm"), ("/tmp", "tmp"), (WORK_FOLDER, "work")];
/// It starts bwrap. If it has options, it first mounts the folders in memory, because bwrap cannot limit their files.
/// bwrap closes the stream to which it writes about the sandbox, so that stream is a copy of the output.
const BEGIN: &str = "etc=$1 options=$2; shift 2
    for folder in ${options:+shm tmp work}; do
        mount -t tmpfs -o \"$options\" tmpfs \"$etc/$folder\" || exit
    done
    exec bwrap \"$@\" 3>&1";
/// It becomes the program that is its first argument, in the control group whose file it is given, if any.
const JOIN: &str = "[ -z \"$0\" ] || echo $$ > \"$0\" || exit; exec \"$@\"";
/// Where programs look for libraries, certificates and time zones.
const SYSTEM_FILES: &str =
    "/etc/alternatives /etc/ld.so.cache /etc/ld.so.conf /etc/ld.so.conf.d /etc/localtime /etc/ssl";
const SYSTEM_FOLDERS: &str = "/bin /sbin /lib /lib32 /lib64 /libx32";
/// `/dev/pts` is left out: bubblewrap would make a second user namespace for it, which nsenter cannot enter.
const DEVICES: &str = "/dev/null /dev/zero /dev/full /dev/random /dev/urandom";
const DEVICE_LINKS: &str = "--symlink /proc/self/fd /dev/fd --symlink /proc/self/fd/0 /dev/stdin \
                            --symlink /proc/self/fd/1 /dev/stdout --symlink /proc/self/fd/2 /dev/stderr";
/// It runs in the sandbox with the command as its arguments: one stream for output and errors.
const ENTER: &str = "cd /work && exec \"$@\" 2>&1";

#[derive(Debug)]
pub(super) struct Bubblewrap {
    holder: SandboxHolder,
    /// The first process of the sandbox, as this machine numbers it.
    first: u64,
    limits: SandboxLimits,
    group: Option<MemoryGroup>,
}

// === impl Bubblewrap ===

impl Bubblewrap {
    /// Starts a sandbox. Without a control group, the number of its files is limited, if this user may mount.
    pub(super) async fn start(
        limits: &SandboxLimits,
        group: Option<MemoryGroup>,
    ) -> Result<Self, SandboxError> {
        let etc = etc()?;
        let begin = |has_folders| {
            let command = first_command(limits, etc.path(), has_folders);
            SandboxHolder::start(command, PROGRAM, READY)
        };
        let (holder, said) = match begin(group.is_none()).await {
            Err(_) if group.is_none() => begin(false).await?,
            started => started?,
        };
        let info = serde_json::from_str::<Value>(&said).ok();
        let first = info.and_then(|info| info["child-pid"].as_u64());
        let first = first.ok_or_else(|| SandboxError::Refused {
            program: PROGRAM,
            words: format!("it did not say which process it started: {}", said.trim()),
        })?;
        Ok(Self {
            holder,
            first,
            limits: limits.clone(),
            group,
        })
    }

    pub(super) fn command(&self, exec: &Exec) -> Command {
        let mut command = self.enter(self.group.as_ref());
        // Set in the sandbox: the kernel counts processes for each user namespace.
        command.arg("/usr/bin/prlimit");
        command.arg(format!("--nproc={}", self.limits.processes));
        let memory = u64::from(self.limits.memory_mb) * MB;
        if self.group.is_some() {
            command.arg(format!("--data={memory}"));
        } else {
            // The address space has shared mappings too. A file in memory alone need not be mapped.
            let disk = u64::from(self.limits.disk_mb) * MB;
            command.args([format!("--as={memory}"), format!("--fsize={disk}")]);
        }
        command.args(["--core=0", "--", "/bin/bash", "-c", ENTER, "bash"]);
        command.args(&exec.argv);
        command.env_clear();
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin");
        command.env("HOME", WORK_FOLDER).env("LANG", "C.UTF-8");
        command.envs(exec.env.iter().map(|(name, value)| (name, value)));
        command
    }

    pub(super) fn killer(&self) -> Command {
        let mut command = self.enter(None);
        command.args(["/bin/bash", "-c", "kill -9 -1"]);
        command
    }

    pub(super) async fn close(self) -> Result<(), SandboxError> {
        self.holder.close().await?;
        Ok(())
    }

    fn enter(&self, group: Option<&MemoryGroup>) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", JOIN]);
        command.arg(group.map(MemoryGroup::processes).unwrap_or_default());
        // A process joins a group as the user who made it.
        if rustix::process::geteuid().is_root() {
            command.args(["/usr/bin/setpriv", "--clear-groups"]);
            command.args([format!("--reuid={NOBODY}"), format!("--regid={NOBODY}")]);
        }
        command.arg("/usr/bin/nsenter");
        command.arg(format!("--target={}", self.first));
        command.args(["--user", "--mount", "--pid", "--net", "--ipc", "--uts"]);
        command.args(["--preserve-credentials", "--"]);
        command.current_dir("/");
        command
    }
}

// === functions ===

fn lower(command: &mut Command) {
    if rustix::process::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
}

/// Returns the command of the first process. `has_folders` says that it mounts the folders in memory.
fn first_command(limits: &SandboxLimits, etc: &Path, has_folders: bool) -> Command {
    let mut command = Command::new("/usr/bin/unshare");
    let mut options = String::new();
    if has_folders {
        command.args(["--user", "--map-root-user", "--mount"]);
        let (size, files) = (limits.disk_mb, FILES_OF_MB * u64::from(limits.disk_mb));
        options = format!("size={size}m,nr_inodes={files},mode=755");
    }
    command.args(["/bin/sh", "-c", BEGIN, "sh"]);
    command.arg(etc).arg(options);
    command.args(arguments(limits, etc, has_folders));
    lower(&mut command);
    command
}

/// The files of `/etc` that say who is who, and places for the folders in memory. The sandbox mounts all of them; the
/// folder may go when it is ready.
fn etc() -> Result<TempDir, SandboxError> {
    let folder = TempDir::new()?;
    let users = "root:x:0:0:root:/root:/usr/sbin/nologin\nagent:x:1000:1000::/work:/bin/bash\n";
    fs::write(folder.path().join("passwd"), users)?;
    fs::write(folder.path().join("group"), "root:x:0:\nagent:x:1000:\n")?;
    let hosts = "127.0.0.1 localhost sandbox\n::1 localhost\n";
    fs::write(folder.path().join("hosts"), hosts)?;
    for (_, place) in FOLDERS {
        fs::create_dir(folder.path().join(place))?;
    }
    // `nobody` reads them.
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
    for entry in fs::read_dir(folder.path())? {
        fs::set_permissions(entry?.path(), fs::Permissions::from_mode(0o755))?;
    }
    Ok(folder)
}

fn arguments(limits: &SandboxLimits, etc: &Path, has_folders: bool) -> Vec<OsString> {
    let mut given = Arguments::default();
    given.words("--unshare-all --uid 1000 --gid 1000 --hostname sandbox --new-session");
    given.words("--die-with-parent --as-pid-1 --clearenv --setenv PATH /usr/bin:/bin");
    given.words("--info-fd 3 --ro-bind /usr /usr");
    for folder in SYSTEM_FOLDERS.split(' ') {
        given.system_folder(folder);
    }
    for file in SYSTEM_FILES.split(' ') {
        given.add(&["--ro-bind-try", file, file]);
    }
    for file in ["passwd", "group", "hosts"] {
        let target = Path::new("/etc").join(file);
        given.bind("--ro-bind", &etc.join(file), &target);
    }
    given.words("--proc /proc --tmpfs /dev");
    for device in DEVICES.split(' ') {
        given.add(&["--dev-bind", device, device]);
    }
    given.words(DEVICE_LINKS);
    let size = (u64::from(limits.disk_mb) * MB).to_string();
    for (folder, place) in FOLDERS {
        if has_folders {
            given.bind("--bind", &etc.join(place), Path::new(folder));
        } else {
            given.add(&["--size", &size, "--tmpfs", folder]);
        }
    }
    given.words("--dir /run --symlink /tmp /var/tmp");
    for folder in &limits.folders {
        given.bind("--ro-bind", folder, folder);
    }
    for SandboxMount { source, target } in &limits.mounts {
        given.bind("--ro-bind", source, target);
    }
    given.add(&["--remount-ro", "/dev", "--remount-ro", "/"]);
    given.add(&["--chdir", WORK_FOLDER, "/bin/bash", "-c", SCRIPT]);
    given.0
}

#[derive(Default)]
struct Arguments(Vec<OsString>);

impl Arguments {
    fn bind(&mut self, how: &str, source: &Path, target: &Path) {
        self.0.extend([how.into(), source.into(), target.into()]);
    }

    fn words(&mut self, given: &str) {
        self.0.extend(given.split(' ').map(OsString::from));
    }

    fn add(&mut self, given: &[&str]) {
        self.0.extend(given.iter().map(OsString::from));
    }

    /// `/bin` is a link to `usr/bin` on most systems, and a folder on others.
    fn system_folder(&mut self, folder: &str) {
        match fs::read_link(folder) {
            Ok(target) => self.bind("--symlink", &target, Path::new(folder)),
            Err(_) => self.add(&["--ro-bind-try", folder, folder]),
        }
    }
}
