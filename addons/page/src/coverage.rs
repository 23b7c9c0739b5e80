//! For each operation of the control listener: where it is on the page, or why it is not there.

use metaclaw_control::server::operation_paths;

#[test]
fn every_operation_is_on_the_page_or_has_a_reason() {
    let routes = include_str!("routes.rs");
    let rows = include_str!("coverage.tsv").lines();
    let rows = rows.filter_map(|row| row.split_once('\t'));
    let mut known = Vec::new();
    for (path, place) in rows {
        if place.starts_with('/') {
            let route = format!("\"{place}\"");
            assert!(routes.contains(&route), "{path}: {route}");
        } else {
            assert!(place.len() > 20, "{path}: {place}");
        }
        known.push(path);
    }
    let mut all = operation_paths();
    known.sort_unstable();
    all.sort_unstable();
    assert_eq!(known, all);
}
