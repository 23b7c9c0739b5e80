//! `metaclaw adapters diff`: in what two adapters differ.

use std::collections::BTreeMap;

use metaclaw_control::adapters::AdapterDetail;
use serde::Serialize;
use serde_json::{Map, Value};

use super::show::plain;
use crate::out;

/// Parts of a manifest that say how it was made, and not which step it was.
const PARTS: [&str; 4] = ["made", "shape", "numbers", "batch"];

/// In what two adapters differ.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Difference {
    /// Settings and numbers, by path: what stands in the first and in the second.
    values: BTreeMap<String, [Value; 2]>,
    /// Turns behind the first alone, and behind the second alone.
    turns: [Vec<String>; 2],
    names: [String; 2],
}

// === impl Difference ===

impl Difference {
    pub(super) fn of(one: &AdapterDetail, other: &AdapterDetail) -> Self {
        let (a, b) = (leaves(one), leaves(other));
        let mut values = BTreeMap::new();
        for path in a.keys().chain(b.keys()) {
            let of = |leaves: &BTreeMap<String, Value>| leaves.get(path).cloned();
            let pair = [of(&a), of(&b)].map(Option::unwrap_or_default);
            if pair[0] != pair[1] {
                values.insert(path.clone(), pair);
            }
        }
        let only = |one: &AdapterDetail, other: &AdapterDetail| -> Vec<String> {
            let turns = one.turns.keys();
            turns
                .filter(|id| !other.turns.contains_key(*id))
                .cloned()
                .collect()
        };
        Self {
            values,
            turns: [only(one, other), only(other, one)],
            names: [one, other].map(|it| it.view.name.clone()),
        }
    }

    pub(super) fn text(&self) -> String {
        let mut lines = Vec::new();
        if self.values.is_empty() {
            lines.push("made alike".to_owned());
        } else {
            let rows: Vec<Vec<String>> = self
                .values
                .iter()
                .map(|(path, [a, b])| vec![path.clone(), plain(a), plain(b)])
                .collect();
            let [a, b] = &self.names;
            lines.push(out::table(&["", a, b], &rows));
        }
        for (name, turns) in self.names.iter().zip(&self.turns) {
            let told = match &turns[..] {
                [] => "none".to_owned(),
                turns => turns.join(", "),
            };
            lines.push(format!("turns only behind {name}: {told}"));
        }
        lines.join("\n")
    }
}

/// What a manifest says, by path: `rl.learning_rate`, `numbers.loss`.
fn leaves(adapter: &AdapterDetail) -> BTreeMap<String, Value> {
    let mut leaves = BTreeMap::new();
    let manifest = adapter.manifest.as_ref().and_then(Value::as_object);
    for (part, value) in manifest.into_iter().flatten() {
        if PARTS.contains(&part.as_str()) {
            collect(part, value, &mut leaves);
        }
    }
    leaves
}

fn collect(path: &str, value: &Value, leaves: &mut BTreeMap<String, Value>) {
    let fields: Option<&Map<String, Value>> = value.as_object();
    match fields {
        Some(fields) => {
            for (name, value) in fields {
                // As it stands in config.yaml.
                let path = match path {
                    "made" if name == "config" => "rl".to_owned(),
                    path => format!("{path}.{name}"),
                };
                collect(&path, value, leaves);
            }
        }
        None => {
            leaves.insert(path.to_owned(), value.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::show::tests::adapter, *};

    #[test]
    fn what_differs_is_told_and_nothing_else() {
        let one = adapter("main-0badcafe-000002", 5e-4, "7-1");
        let other = adapter("main-1badcafe-000002", 2e-4, "8-1");
        insta::assert_snapshot!(Difference::of(&one, &other).text(), @r"
                               main-0badcafe-000002  main-1badcafe-000002
        numbers.learning_rate  0.0005                0.0002
        rl.learning_rate       0.0005                0.0002
        turns only behind main-0badcafe-000002: 7-1
        turns only behind main-1badcafe-000002: 8-1
        ");
        let same = Difference::of(&one, &one);
        assert!(same.text().starts_with("made alike"), "{}", same.text());
        assert!(same.turns.iter().all(Vec::is_empty));
    }
}
