//! logind: desktops report to it when their owner is idle, after a delay of their own choice.

use std::time::Duration;

use super::program::output;

/// Returns how long the owner's desktop has been idle, or `None` if there is no desktop or no logind.
pub(super) fn idle_for(now_ms: u64) -> Option<Duration> {
    let user = rustix::process::getuid().as_raw().to_string();
    let asked = ["Display", "IdleHint", "IdleSinceHint"].map(|it| format!("--property={it}"));
    let asked: Vec<&str> = asked.iter().map(String::as_str).collect();
    // It fails for a user who is not logged in, and in a container without logind.
    let told = output("loginctl", &[&["show-user", &user], &asked[..]].concat());
    told.ok().flatten().and_then(|text| parse(&text, now_ms))
}

/// Parses lines such as `IdleHint=yes`. `Display` names the desktop's session, and is empty without one.
fn parse(text: &str, now_ms: u64) -> Option<Duration> {
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

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_700_000_600_000;

    #[test]
    fn an_idle_desktop_is_told_from_one_in_use_and_from_none() {
        let idle = "Display=2\nIdleHint=yes\nIdleSinceHint=1700000000000000\n";
        assert_eq!(parse(idle, NOW), Some(Duration::from_secs(600)));
        let in_use = "Display=2\nIdleHint=no\nIdleSinceHint=1700000000000000\n";
        assert_eq!(parse(in_use, NOW), Some(Duration::ZERO));
        // Somebody is logged in by SSH.
        assert_eq!(parse("Display=\nIdleHint=no\nIdleSinceHint=0\n", NOW), None);
        assert_eq!(parse("", NOW), None);
    }
}
