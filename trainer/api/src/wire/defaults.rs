//! Values of fields that a reply of another server leaves out.

pub(super) fn yes() -> bool {
    true
}

pub(super) fn ok() -> String {
    "ok".to_owned()
}
