//! Providers that OpenClaw supports without an entry in its file.

use crate::found::Api;

pub(crate) const METACLAW: &str = "metaclaw";

#[derive(Debug, Clone, Copy)]
pub(crate) struct Known {
    name: &'static str,
    pub(crate) base_url: &'static str,
    pub(crate) api: Api,
    pub(crate) variable: &'static str,
    pub(crate) sees: bool,
}

pub(crate) fn provider(name: &str) -> Option<Known> {
    let lines = include_str!("../../data/openclaw_providers.tsv").lines();
    let mut rows = lines.filter_map(read);
    rows.find(|known| known.name.eq_ignore_ascii_case(name))
}

fn read(line: &'static str) -> Option<Known> {
    let columns: Vec<&str> = line.split('\t').collect();
    let [name, base_url, api, variable, input] = columns[..] else {
        return None;
    };
    Some(Known {
        name,
        base_url,
        api: Api::parse(api)?,
        variable,
        sees: input == "images",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_read() {
        let lines = include_str!("../../data/openclaw_providers.tsv").lines();
        let rows = lines.filter(|line| !line.starts_with('#'));
        assert_eq!(rows.filter_map(read).count(), 8);
        assert_eq!(
            provider("OpenAI").map(|known| known.api),
            Some(Api::OpenaiResponses)
        );
    }
}
