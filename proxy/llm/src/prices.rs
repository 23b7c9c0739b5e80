//! What tokens of models cost: list prices of known models (`data/prices.txt`), and those that the owner states
//! (`budget.prices`).
//!
//! A price is a whole number of micro-dollars for a million tokens. Price times tokens is then a whole number of
//! pico-dollars, so that sums are exact. Micro-dollars would not do, because a token costs less than one.

use std::sync::LazyLock;

use metaclaw_chat::Usage;
use serde::{Deserialize, Serialize};

const LIST: &str = include_str!("../data/prices.txt");
/// The most dollars for a million tokens.
const MOST: u64 = 1_000;
const DECIMALS: usize = 6;
const PICO_OF_CENT: u64 = 10_000_000_000;

/// The price of a model, or of all models whose names begin so: `MODEL IN OUT CACHED`, in dollars for a million tokens.
/// Without CACHED, prompt tokens from a cache cost as much as others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ModelPrice {
    text: String,
    name: String,
    is_beginning: bool,
    /// Micro-dollars for a million tokens: in, out, and in from a cache.
    prices: [u64; 3],
}

/// Why a text is no price.
#[derive(Debug, thiserror::Error)]
#[error(
    "{given:?} is not allowed: MODEL IN OUT CACHED, with dollars for a million tokens from 0 to {MOST}, as in \"my-model 3 15 0.30\"; a * at the end of MODEL stands for any rest, and CACHED may be left out"
)]
pub struct NotAPrice {
    given: String,
}

/// Returns the known list prices.
pub fn list_prices() -> &'static [ModelPrice] {
    static KNOWN: LazyLock<Vec<ModelPrice>> = LazyLock::new(|| {
        let rows = LIST.lines().filter(|line| !line.starts_with('#'));
        let prices = rows.map(|row| ModelPrice::try_from(row.replace('|', " ")));
        prices.filter_map(Result::ok).collect()
    });
    &KNOWN
}

/// Returns the day of the list prices, which is the first line of the file.
pub fn list_prices_as_of() -> &'static str {
    LIST.lines()
        .next()
        .map_or("", |day| day.trim_start_matches("# "))
}

/// Returns the price of a model: an exact name comes before the beginning of one, and a longer before a shorter.
pub fn price_of<'a>(model: &str, prices: &'a [ModelPrice]) -> Option<&'a ModelPrice> {
    let name = normal(model);
    let fitting = prices.iter().filter(|price| price.is_of(&name));
    fitting.max_by_key(|price| (!price.is_beginning, price.name.len()))
}

/// Returns an amount of pico-dollars for people: `$1.23`, `under 1 ¢`, or `nothing`.
pub fn dollars(pico: u64) -> String {
    match pico.saturating_add(PICO_OF_CENT / 2) / PICO_OF_CENT {
        _ if pico == 0 => "nothing".to_owned(),
        0 => "under 1 ¢".to_owned(),
        cents => format!("${}.{:02}", cents / 100, cents % 100),
    }
}

/// The name by which models are compared: in small letters, without the provider, with dashes for dots.
fn normal(model: &str) -> String {
    let name = model.rsplit('/').next().unwrap_or(model);
    name.to_ascii_lowercase().replace('.', "-")
}

// === impl ModelPrice ===

impl ModelPrice {
    fn is_of(&self, name: &str) -> bool {
        let rest = name.strip_prefix(&self.name);
        rest.is_some_and(|rest| rest.is_empty() || self.is_beginning)
    }

    /// Returns what so many tokens cost, in pico-dollars.
    pub fn cost(&self, usage: &Usage) -> u64 {
        let cached = usage.cached_tokens.min(usage.prompt_tokens);
        let tokens = [
            usage.prompt_tokens - cached,
            usage.completion_tokens,
            cached,
        ];
        let costs = tokens
            .iter()
            .zip(self.prices)
            .map(|(n, price)| n.saturating_mul(price));
        costs.fold(0, u64::saturating_add)
    }
}

impl TryFrom<String> for ModelPrice {
    type Error = NotAPrice;

    fn try_from(given: String) -> Result<Self, NotAPrice> {
        let words: Vec<&str> = given.split_whitespace().collect();
        let read = || {
            let (model, prices) = words.split_first()?;
            let beginning = model.strip_suffix('*');
            let name = beginning.unwrap_or(model);
            let prices: Option<Vec<u64>> = prices.iter().map(|it| micro_dollars(it)).collect();
            Some(Self {
                text: words.join(" "),
                name: Some(normal(name)).filter(|name| !name.contains('*'))?,
                is_beginning: beginning.is_some(),
                prices: match prices?[..] {
                    [input, output] => [input, output, input],
                    [input, output, cached] => [input, output, cached],
                    _ => return None,
                },
            })
        };
        read().ok_or(NotAPrice { given })
    }
}

impl From<ModelPrice> for String {
    fn from(price: ModelPrice) -> Self {
        price.text
    }
}

fn micro_dollars(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = format!("{whole}{part:0<DECIMALS$}");
    let is_number = !whole.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let micro = digits
        .parse()
        .ok()
        .filter(|_| is_number && part.len() <= DECIMALS)?;
    (micro <= MOST * 1_000_000).then_some(micro)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(prompt_tokens: u64, cached_tokens: u64, completion_tokens: u64) -> Usage {
        Usage {
            prompt_tokens,
            completion_tokens,
            cached_tokens,
        }
    }

    fn own(text: &str) -> ModelPrice {
        ModelPrice::try_from(text.to_owned()).unwrap()
    }

    #[test]
    fn each_line_of_the_list_is_a_price_and_the_day_is_known() {
        let lines = LIST
            .lines()
            .filter(|line| line.contains('|') && !line.starts_with('#'));
        assert_eq!(list_prices().len(), lines.count());
        assert_eq!(list_prices_as_of().len(), "2026-07-24".len());
        let mut names: Vec<_> = list_prices()
            .iter()
            .map(|row| (&row.name, row.is_beginning))
            .collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), list_prices().len(), "a name is stated twice");
    }

    #[test]
    fn a_models_price_is_that_of_the_longest_name_that_fits() {
        for (model, of_a_million) in [
            ("claude-opus-4-5-20251101", Some("$5.00")),
            ("claude-opus-4-1-20250805", Some("$15.00")),
            ("anthropic/claude-sonnet-4.5", Some("$3.00")),
            ("claude-sonnet-5", Some("$2.00")),
            ("GPT-5", Some("$1.25")),
            ("gpt-5-2025-08-07", Some("$1.25")),
            ("gpt-5-mini", Some("$0.25")),
            ("gpt-5.2", Some("$1.75")),
            ("gpt-5.1-codex-mini", Some("$0.25")),
            // A later model is not taken for an earlier one.
            ("gpt-5.9", None),
            ("claude-opus-4-9", None),
            ("my-model", None),
            ("", None),
        ] {
            let cost = price_of(model, list_prices())
                .map(|price| dollars(price.cost(&usage(1_000_000, 0, 0))));
            assert_eq!(cost.as_deref(), of_a_million, "{model}");
        }
    }

    #[test]
    fn cached_tokens_have_their_own_price_and_sums_are_exact() {
        let price = own("m 3 15 0.3");
        assert_eq!(
            price.cost(&usage(1_000, 600, 50)),
            400 * 3_000_000 + 600 * 300_000 + 50 * 15_000_000
        );
        // Without a price of its own, a cached token costs what any costs; more cached than sent is not believed.
        assert_eq!(own("m 3 15").cost(&usage(10, 99, 0)), 10 * 3_000_000);
        let one = own("m 0.1 0").cost(&usage(1, 0, 0));
        assert_eq!(dollars(one * 10_000_000), "$1.00");
        assert_eq!(dollars(one), "under 1 ¢");
        assert_eq!(price.cost(&usage(u64::MAX, 0, u64::MAX)), u64::MAX);
    }

    #[test]
    fn what_is_no_price_is_refused_with_what_is_allowed() {
        for text in [
            "",
            "m",
            "m 1",
            "m 1 2 3 4",
            "m -1 2",
            "m 1e3 2",
            "m 1 2000",
            "m .5 1",
            "m 1 0.1234567",
            "g*4 1 2",
            "** 1 2",
        ] {
            let error = ModelPrice::try_from(text.to_owned())
                .unwrap_err()
                .to_string();
            assert!(
                error.contains(&format!("{text:?} is not allowed")),
                "{error}"
            );
        }
        assert_eq!(String::from(own(" m   1.25 10 ")), "m 1.25 10");
    }
}
