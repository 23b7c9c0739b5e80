//! Checks the home folder: it must exist, be writable and private, and have free space on its disk.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use metaclaw_chat::now_ms;
use metaclaw_control::home::Home;
use metaclaw_turns::ClockReadings;

use super::check::DoctorCheck;
use crate::commands::context::Context;

/// With less free space, turns may soon not fit.
const LITTLE: u64 = 500 << 20;

pub(super) fn checks(context: &Context, fix: bool) -> Vec<DoctorCheck> {
    let dir = context.home.dir();
    if !dir.exists() {
        let said = format!("{} is not there", dir.display());
        return vec![DoctorCheck::note("home", said)];
    }
    let mut checks = vec![writable(dir)];
    let config = context.home.config();
    checks.extend(private(dir, 0o700, fix));
    checks.extend(private(&config, 0o600, fix));
    checks.push(disk(dir));
    checks.extend(clock(&context.home));
    checks
}

fn writable(dir: &Path) -> DoctorCheck {
    let probe = dir.join(format!(".doctor.{}.tmp", std::process::id()));
    let tried = fs::write(&probe, b"").and_then(|()| fs::remove_file(&probe));
    match tried {
        Ok(()) => DoctorCheck::fine("home", dir.display().to_string()),
        Err(error) => DoctorCheck::bad(
            "home",
            format!("{} cannot be written: {error}", dir.display()),
            format!("see who owns it: `ls -ld {}`", dir.display()),
        ),
    }
}

/// The message about a path that others may read.
fn private(path: &Path, wanted: u32, fix: bool) -> Option<DoctorCheck> {
    let mode = fs::metadata(path).ok()?.permissions().mode() & 0o777;
    let for_others = mode & 0o077;
    if for_others == 0 {
        return None;
    }
    let remedy = format!("chmod {wanted:o} {}", path.display());
    let said = format!("{} is open to others ({mode:o})", path.display());
    if !fix {
        return Some(DoctorCheck::bad(
            "home",
            said,
            format!("{remedy}, or `metaclaw doctor --fix`"),
        ));
    }
    Some(
        match fs::set_permissions(path, fs::Permissions::from_mode(wanted)) {
            Ok(()) => DoctorCheck::mended("home", remedy),
            Err(error) => DoctorCheck::bad("home", format!("{said}: {error}"), remedy),
        },
    )
}

/// Whether the machine's clock is far from where it was when the proxy ran last. Nothing is said if it never ran.
fn clock(home: &Home) -> Option<DoctorCheck> {
    let doubt = ClockReadings::read(&home.turns()).doubt(now_ms())?;
    Some(DoctorCheck::bad("clock", doubt, "`date` shows it"))
}

fn disk(dir: &Path) -> DoctorCheck {
    let free = match rustix::fs::statvfs(dir) {
        Ok(it) => it.f_bavail.saturating_mul(it.f_frsize),
        Err(error) => return DoctorCheck::note("disk", format!("cannot be asked: {error}")),
    };
    let said = format!("{} MiB free", free >> 20);
    if free < LITTLE {
        DoctorCheck::bad(
            "disk",
            said,
            "make room: chats go on without it, and turns are not kept",
        )
    } else {
        DoctorCheck::fine("disk", said)
    }
}
