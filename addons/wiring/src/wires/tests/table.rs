//! Tests that the table in docs/using/agents.md says what `wire` sets for each agent.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{
    PROFILES,
    keys::ValueToSet,
    profile::AgentProfile,
    tests::house::{House, target, usual},
};

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/using/agents.md")
}

fn row(house: &House, agent: &AgentProfile) -> String {
    let settings = agent.settings(&house.surroundings, &target()).unwrap();
    let home = house.folder.path().display().to_string();
    let files = settings.files.iter().map(|file| {
        let keys = file.keys_to_set.iter().map(|key| match &key.value {
            ValueToSet::First(_) if key.path.is_empty() => "one entry".to_owned(),
            _ if key.path.is_empty() => "the whole file".to_owned(),
            ValueToSet::First(_) => format!("one entry in `{}`", key.path.join(".")),
            _ => format!("`{}`", key.path.join(".")),
        });
        let keys = keys.collect::<Vec<_>>().join(", ");
        format!(
            "`{}`: {keys}",
            file.path.display().to_string().replace(&home, "~")
        )
    });
    let files = files.collect::<Vec<_>>().join("; ");
    format!(
        "| {}, `{}` | {files} | {} | {} | {} | {} | `{}` |",
        agent.name,
        agent.id,
        agent.fallback,
        agent.session,
        agent.side_calls,
        agent.takes_effect,
        agent.tested,
    )
}

/// `METACLAW_WRITE_EXAMPLE=1 cargo nextest run -p metaclaw-wiring example` writes the table again.
#[test]
fn the_table_of_agents_is_the_example_of_what_is_set() {
    const BEGIN: &str = "<!-- generated: what each agent is made to say -->\n";
    const END: &str = "<!-- end -->\n";
    let house = usual();
    let mut lines = vec![
        "| agent | what is set | fallback | conversations are told apart | side turns known | takes effect | tested with |".to_owned(),
        "|---|---|---|---|---|---|---|".to_owned(),
    ];
    lines.extend(PROFILES.iter().map(|it| row(&house, it)));
    let page = page();
    let text = fs::read_to_string(&page).unwrap();
    let (head, rest) = text.split_once(BEGIN).unwrap();
    let (_, tail) = rest.split_once(END).unwrap();
    let wanted = format!("{head}{BEGIN}\n{}\n\n{END}{tail}", lines.join("\n"));
    if std::env::var_os("METACLAW_WRITE_EXAMPLE").is_some() {
        fs::write(page, wanted).unwrap();
        return;
    }
    assert!(
        text == wanted,
        "write {} anew: METACLAW_WRITE_EXAMPLE=1",
        page.display()
    );
}

#[test]
fn what_is_said_to_be_tested_is_what_is_installed_for_it() {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../xtask/src");
    let installed = ["agents.rs", "clients.rs"].map(|file| xtask.join(file));
    let installed = installed.map(|file| fs::read_to_string(file).unwrap());
    let installed = installed.concat();
    for tested in PROFILES.iter().map(|it| &it.tested) {
        assert!(installed.contains(&format!("\"{tested}\"")), "{tested}");
    }
}
