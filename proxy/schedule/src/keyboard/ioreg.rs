//! macOS: the I/O registry counts nanoseconds since the last touch of any input device.
//!
//! The code was written from recorded output and was never built or run on a Mac.

use std::time::Duration;

use super::program::output;

pub(super) fn idle_for() -> Result<Duration, String> {
    let told = output("ioreg", &["-c", "IOHIDSystem", "-d", "4"])?;
    let told = told.ok_or("there is no ioreg")?;
    parse(&told).ok_or_else(|| "ioreg tells no HIDIdleTime".to_owned())
}

/// Returns the shortest `"HIDIdleTime" = 1234` in the output of `ioreg`.
fn parse(text: &str) -> Option<Duration> {
    let values = text.lines().filter_map(|line| {
        let (_, value) = line.split_once("\"HIDIdleTime\" = ")?;
        value.trim().parse().ok()
    });
    values.min().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_idle_time_is_found_in_what_ioreg_prints() {
        let recorded = r#"
+-o Root  <class IORegistryEntry, id 0x100000100, retain 31>
  +-o MacBookPro18,3  <class IOPlatformExpertDevice, id 0x100000224, registered, matched, active, busy 0 (45219 ms), retain 39>
    +-o IOResources  <class IOResources, id 0x100000115, registered, matched, active, busy 0 (1290 ms), retain 207>
      +-o IOHIDSystem  <class IOHIDSystem, id 0x10000045c, registered, matched, active, busy 0 (28 ms), retain 27>
          {
            "IOClass" = "IOHIDSystem"
            "HIDServiceGlobalModifiersUsage" = 1
            "HIDParameters" = {"HIDClickTime"=500000000,"HIDIdleTimeDelta"=7,"HIDKeyRepeat"=83333333}
            "HIDIdleTime" = 4837260125
            "IOProviderClass" = "IOResources"
          }
"#;
        assert_eq!(parse(recorded), Some(Duration::from_nanos(4_837_260_125)));
        assert_eq!(parse("\"HIDIdleTime\" = soon"), None);
        assert_eq!(parse(""), None);
    }
}
