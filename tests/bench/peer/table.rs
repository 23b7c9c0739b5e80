//! Prints the bench's final table.

use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

/// The results of one step.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    pub(crate) n: u64,
    pub(crate) adapter: Option<String>,
    /// Whether the gate accepted it.
    pub(crate) serves: bool,
    /// The time from its first conversation to the gate's decision.
    seconds: u64,
    n_turns: u64,
    loss: f64,
    grad_norm: f64,
    /// The result of each of the gate's tests.
    gate: Vec<String>,
    pub(crate) answered: Option<String>,
    /// The model that answered after the server was killed and restarted.
    pub(crate) after_restart: Option<String>,
}

// === impl Row ===

impl Row {
    pub(crate) fn of(step: &Value, took: Duration) -> Self {
        let number = |name: &str| step[name].as_f64().unwrap_or(f64::NAN);
        let count = |name: &str| step[name].as_u64().unwrap_or(0);
        let tests = step["gate"]["tests"].as_array();
        Self {
            n: count("n"),
            adapter: step["adapter"].as_str().map(str::to_owned),
            serves: step["serves"] == true,
            seconds: took.as_secs(),
            n_turns: count("n_turns"),
            loss: number("loss"),
            grad_norm: number("grad_norm"),
            gate: tests.into_iter().flatten().map(test).collect(),
            answered: None,
            after_restart: None,
        }
    }

    /// Returns whether its adapter answered, or that of a step that was made meanwhile.
    pub(crate) fn answered_by_it(&self) -> bool {
        self.is_new_enough(self.answered.as_deref())
    }

    /// Returns the same after the restart.
    pub(crate) fn answered_again(&self) -> bool {
        self.is_new_enough(self.after_restart.as_deref())
    }

    /// Names of adapters end with the number of their step.
    fn is_new_enough(&self, adapter: Option<&str>) -> bool {
        let number = adapter.and_then(|name| name.rsplit('-').next()?.parse::<u64>().ok());
        number.is_some_and(|number| number >= self.n)
    }
}

fn test(test: &Value) -> String {
    let name = test["name"].as_str().unwrap_or("?");
    let number = |of: &str| {
        test[of]
            .as_f64()
            .map_or_else(|| "-".to_owned(), |it| format!("{it:.3}"))
    };
    let came = match test["passed"].as_bool() {
        Some(true) => "passed",
        Some(false) => "failed",
        None => "not made",
    };
    format!("{name} {came} ({} of {})", number("value"), number("limit"))
}

/// Prints one line for each step.
pub(crate) fn show(rows: &[Row]) {
    let text = |it: &Option<String>| it.clone().unwrap_or_else(|| "-".to_owned());
    println!(
        "| step | adapter | serves | answered | after a restart | loss | gradient | seconds | gate |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for row in rows {
        println!(
            "| {} | {} | {} | {} | {} | {:.3} | {:.3} | {} | {} |",
            row.n,
            text(&row.adapter),
            if row.serves { "yes" } else { "no" },
            text(&row.answered),
            text(&row.after_restart),
            row.loss,
            row.grad_norm,
            row.seconds,
            row.gate.join(", ")
        );
    }
}
