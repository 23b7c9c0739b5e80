//! The power supply of the machine.

use std::{fs, path::Path};

/// The folder in which Linux describes power supplies. On other systems it does not exist, and the result is unknown.
pub const POWER_SUPPLIES: &str = "/sys/class/power_supply";

/// Returns whether the machine runs on battery: one of its own batteries discharges, and no other supply is plugged in.
/// Returns `None` if `folder` describes neither. A mouse has a battery too (its `scope` is `Device`), which does not
/// count.
pub fn on_battery(folder: &Path) -> Option<bool> {
    let mut discharges = None;
    for supply in fs::read_dir(folder).ok()?.flatten() {
        let read = |name: &str| fs::read_to_string(supply.path().join(name)).unwrap_or_default();
        match read("type").trim() {
            "Battery" if read("scope").trim() != "Device" => {
                let is_discharging = read("status").trim() == "Discharging";
                discharges = Some(discharges.unwrap_or(false) || is_discharging);
            }
            "Mains" | "USB" if read("online").trim() == "1" => return Some(false),
            _ => {}
        }
    }
    discharges
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the result for a machine with these supplies (name, file, text).
    fn machine(files: &[(&str, &str, &str)]) -> Option<bool> {
        let folder = tempfile::tempdir().unwrap();
        for (supply, file, text) in files {
            let supply = folder.path().join(supply);
            fs::create_dir_all(&supply).unwrap();
            fs::write(supply.join(file), format!("{text}\n")).unwrap();
        }
        on_battery(folder.path())
    }

    const BATTERY: (&str, &str, &str) = ("BAT0", "type", "Battery");
    const MAINS: (&str, &str, &str) = ("AC", "type", "Mains");

    #[test]
    fn a_laptop_is_on_battery_when_nothing_is_plugged_in() {
        let discharging = ("BAT0", "status", "Discharging");
        let unplugged = [BATTERY, discharging, MAINS, ("AC", "online", "0")];
        assert_eq!(machine(&unplugged), Some(true));
        // A battery may discharge on a weak charger.
        let plugged = [BATTERY, discharging, MAINS, ("AC", "online", "1")];
        assert_eq!(machine(&plugged), Some(false));
        assert_eq!(machine(&[BATTERY, ("BAT0", "status", "Full")]), Some(false));
    }

    #[test]
    fn a_mouse_is_no_laptop_and_a_server_says_nothing() {
        let mouse = [
            ("mouse", "type", "Battery"),
            ("mouse", "scope", "Device"),
            ("mouse", "status", "Discharging"),
        ];
        assert_eq!(machine(&mouse), None);
        assert_eq!(machine(&[]), None);
        assert_eq!(on_battery(Path::new("/nonexistent")), None);
    }
}
