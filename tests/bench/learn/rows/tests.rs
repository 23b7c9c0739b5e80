use super::*;

fn runs(selection: &Selection) -> Vec<String> {
    let content = Content::read(60).unwrap();
    let rows = select(selection, &content).unwrap();
    let runs = rows.iter().flat_map(|row| &row.runs);
    runs.map(|run| format!("{} {:?}", run.id, run.at)).collect()
}

#[test]
fn the_default_row_is_five_seeds_of_100_and_one_of_them_goes_on() {
    let only = |row: &str| Selection {
        only: vec![row.to_owned()],
        ..Selection::default()
    };
    let found = runs(&only("default"));
    assert!(
        found.contains(&"default terse #1 x200 [100, 200]".to_owned()),
        "{found:?}"
    );
    assert!(found.contains(&"default terse #5 x100 [100]".to_owned()));
    assert_eq!(found.len(), 8, "8 side by side");
    let phased = runs(&only("three-wishes"));
    assert_eq!(
        phased,
        ["three-wishes terse+simple+definition+detail #1 x115 [40, 70, 100, 115]"]
    );
}

#[test]
fn flags_change_how_much_there_is() {
    let quick = runs(&Selection {
        quick: true,
        ..Selection::default()
    });
    assert_eq!(
        quick,
        ["default terse #1 x16 [16]", "wishes-user terse #1 x8 [8]"]
    );
    let full = runs(&Selection {
        full: true,
        only: vec!["default".to_owned()],
        wishes: vec!["terse".to_owned()],
        ..Selection::default()
    });
    assert_eq!(full.len(), 5, "no seed twice: {full:?}");
    assert!(full.contains(&"default terse #1 x200 [100, 200]".to_owned()));
}

#[test]
fn what_is_not_there_is_named() {
    let content = Content::read(60).unwrap();
    let only = Selection {
        only: vec!["magic".to_owned()],
        ..Selection::default()
    };
    let error = select(&only, &content).unwrap_err().to_string();
    assert!(
        error.contains("\"magic\"") && error.contains("hybrid-gated"),
        "{error}"
    );
}

#[test]
fn names_of_agents_are_names_of_folders() {
    let id = RunId {
        row: "both".into(),
        wish: "a+b".into(),
        seed: 2,
        sessions: 9,
    };
    assert_eq!(id.agent(), "both-a-b-2");
}
