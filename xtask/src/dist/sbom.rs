//! The list of what is compiled in, for machines: CycloneDX 1.6, <https://cyclonedx.org/docs/1.6/json/>.

use serde_json::{Value, json};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The bill of materials of `package`, whose `crates` are packages of `cargo metadata`.
pub(super) fn of(package: &str, crates: &[&Value]) -> Value {
    json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {
            "type": "application",
            "bom-ref": package,
            "name": package,
            "version": VERSION,
            "licenses": [{"expression": "MIT OR Apache-2.0"}],
        }},
        "components": crates.iter().copied().map(component).collect::<Vec<_>>(),
    })
}

/// A crate by its package URL. Older manifests separate licences by a slash, which is no SPDX expression: it means OR.
fn component(package: &Value) -> Value {
    let text = |key: &str| package[key].as_str().unwrap_or_default();
    let url = format!("pkg:cargo/{}@{}", text("name"), text("version"));
    let mut component = json!({
        "type": "library",
        "bom-ref": url,
        "name": text("name"),
        "version": text("version"),
        "purl": url,
    });
    if let Some(licence) = package["license"].as_str() {
        let expression = licence.replace('/', " OR ");
        component["licenses"] = json!([{"expression": expression}]);
    }
    component
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_has_its_url_and_its_licence() {
        let serde = json!({"name": "serde", "version": "1.0.1", "license": "MIT/Apache-2.0"});
        let bare = json!({"name": "bare", "version": "0.1.0", "license": null});
        let bill = of("metaclaw", &[&serde, &bare]);
        let components = bill["components"].as_array().unwrap();
        assert_eq!(components[0]["purl"], "pkg:cargo/serde@1.0.1");
        assert_eq!(
            components[0]["licenses"][0]["expression"],
            "MIT OR Apache-2.0"
        );
        assert!(components[1].get("licenses").is_none());
    }
}
