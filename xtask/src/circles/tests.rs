//! Made-up crates.

use super::find;

/// Writes the files of a crate and looks for circles from the first one on.
fn circles(files: &[(&str, &str)]) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    find(folder.path(), &folder.path().join(files[0].0)).unwrap()
}

const LIB: (&str, &str) = ("lib.rs", "mod a;\nmod b;\nmod c;\npub use self::a::A;");

#[test]
fn two_files_that_import_each_other_are_a_circle() {
    let found = circles(&[
        LIB,
        ("a.rs", "use crate::b::{B, more};\npub struct A(B);"),
        ("b.rs", "pub struct B;\npub fn more(a: &crate::a::A) {}"),
        ("c.rs", "use crate::a::A;"),
    ]);
    assert_eq!(found, ["a.rs -> b.rs (B, more) -> a.rs (A)"]);
}

#[test]
fn a_circle_through_others_and_through_the_facade_is_one() {
    let found = circles(&[
        LIB,
        ("a.rs", "use super::b;\npub struct A;\nfn f() { b::g() }"),
        ("b.rs", "pub fn g() { crate::c::h::<u8>() }"),
        ("c.rs", "use crate::A as Other;\npub fn h<T>() {}"),
    ]);
    assert_eq!(found, ["a.rs -> b.rs (g) -> c.rs (h) -> a.rs (A)"]);
}

#[test]
fn one_direction_is_no_circle() {
    let found = circles(&[
        LIB,
        (
            "a.rs",
            "use crate::b::B;\nuse crate::c::C;\npub struct A(B, C);",
        ),
        ("b.rs", "use crate::c::C;\npub struct B(C);"),
        ("c.rs", "pub struct C;\nmod inside { use super::C; }"),
    ]);
    assert_eq!(found, [""; 0]);
}

#[test]
fn a_parent_that_hands_on_is_none_and_one_that_uses_is() {
    let child = ("a/child.rs", "use super::Limit;\npub struct Child(Limit);");
    let root = ("lib.rs", "mod a;");
    let facade = "mod child;\npub use child::Child;\npub struct Limit;";
    assert_eq!(circles(&[root, ("a.rs", facade), child]), [""; 0]);
    let user = format!("{facade}\nstruct Both(Child);");
    assert_eq!(
        circles(&[root, ("a.rs", &user), child]),
        ["a.rs -> a/child.rs (Child) -> a.rs (Limit)"]
    );
}

#[test]
fn a_name_that_the_parent_hands_down_is_an_import_of_the_parent() {
    let root = ("main.rs", "mod a;\nmod limit;");
    let limit = ("limit.rs", "pub struct Limit;");
    let uses_child = "mod child;\nuse crate::limit::Limit;\nfn f(l: Limit) { child::g(l) }";
    let by_parent = "use super::Limit;\npub fn g(l: Limit) {}";
    assert_eq!(
        circles(&[root, ("a.rs", uses_child), ("a/child.rs", by_parent), limit]),
        ["a.rs -> a/child.rs (g) -> a.rs (Limit)"]
    );
    let by_owner = "use crate::limit::Limit;\npub fn g(l: Limit) {}";
    assert_eq!(
        circles(&[root, ("a.rs", uses_child), ("a/child.rs", by_owner), limit]),
        [""; 0]
    );
}

#[test]
fn a_reexport_is_an_import_of_both_files() {
    let root = ("lib.rs", "mod a; mod b;");
    let found = circles(&[
        root,
        (
            "a.rs",
            "mod purse;\npub use purse::Purse;\nuse crate::b::B;",
        ),
        ("a/purse.rs", "pub struct Purse;"),
        ("b.rs", "pub struct B(crate::a::Purse);"),
    ]);
    assert_eq!(found, ["a.rs -> b.rs (B) -> a.rs (Purse)"]);
    let found = circles(&[
        root,
        ("a.rs", "mod purse;\npub use purse::Purse;"),
        ("a/purse.rs", "pub struct Purse(crate::b::B);"),
        ("b.rs", "pub struct B(crate::a::Purse);"),
    ]);
    assert_eq!(found, ["a/purse.rs -> b.rs (B) -> a/purse.rs (Purse)"]);
    let found = circles(&[
        root,
        ("a.rs", "pub use crate::b::B;\npub struct A;"),
        ("b.rs", "pub struct B(crate::a::A);"),
    ]);
    assert_eq!(found, ["a.rs -> b.rs (B) -> a.rs (A)"]);
}

#[test]
fn test_code_imports_as_all_other_code() {
    let found = circles(&[
        ("lib.rs", "mod a; mod b; #[cfg(test)] mod far;"),
        ("a.rs", "pub struct A(crate::b::B);"),
        (
            "b.rs",
            "pub struct B; #[cfg(test)] mod tests { use crate::a::A; }",
        ),
        (
            "far.rs",
            "use crate::a::*; fn f() { assert!(crate::b::B); }",
        ),
    ]);
    assert_eq!(found, ["a.rs -> b.rs (B) -> a.rs (A)"]);
    let found = circles(&[
        ("lib.rs", "mod a;"),
        (
            "a.rs",
            "#[cfg(test)] #[path = \"other/t.rs\"] mod tests; fn a() {}",
        ),
        ("other/t.rs", "use super::*;"),
    ]);
    assert_eq!(found, [""; 0]);
}

#[test]
fn comments_and_strings_import_nothing() {
    let text = r##"
        pub struct B<'a>(&'a str);
        /* use crate::a::A; /* nested */ */
        // crate::a::A
        const S: &str = "crate::a::A";
        const R: &str = r#"" crate::a::A"#;
        fn f(s: &B) { print!("crate::a::A {}", s.a::A) }
    "##;
    let found = circles(&[
        LIB,
        ("a.rs", "pub struct A(crate::b::B<'static>);"),
        ("b.rs", text),
        ("c.rs", ""),
    ]);
    assert_eq!(found, [""; 0]);
}

#[test]
fn arguments_of_macros_are_read() {
    let found = circles(&[
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "pub struct A(crate::b::B);"),
        (
            "b.rs",
            "pub struct B; fn f() { assert_eq!(1, [crate::a::A::n()]) }",
        ),
    ]);
    assert_eq!(found, ["a.rs -> b.rs (B) -> a.rs (A)"]);
}

#[test]
fn globs_macros_and_other_crates_are_told_apart() {
    let found = circles(&[
        ("lib.rs", "mod a; mod b; mod prelude;"),
        (
            "a.rs",
            "use crate::prelude::*;\nuse tokio::b::B;\npub struct A;\nfn f(b: B2) {}",
        ),
        ("b.rs", "make!(Made);\npub struct B;"),
        ("prelude.rs", "pub use crate::b::{B as B2, Made};"),
    ]);
    assert_eq!(found, [""; 0]);
    let found = circles(&[
        ("lib.rs", "mod a; mod b; mod prelude;"),
        (
            "a.rs",
            "use crate::prelude::*;\npub struct A;\nfn f(b: B2) {}",
        ),
        ("b.rs", "pub struct B;\nuse crate::a::*;"),
        ("prelude.rs", "pub use crate::b::B as B2;"),
    ]);
    assert_eq!(
        found,
        [
            "a.rs -> b.rs (B) -> a.rs (*)",
            "a.rs -> prelude.rs (*) -> b.rs (B) -> a.rs (*)",
        ],
        "a glob imports the file, and what is used of it"
    );
    let found = circles(&[
        ("lib.rs", "mod a; mod b;"),
        (
            "a.rs",
            "use tokio::b::B;\nuse ::b::B2;\nuse serde as b;\npub struct A(B);",
        ),
        ("b.rs", "pub struct B(crate::a::A);"),
    ]);
    assert_eq!(found, [""; 0]);
    let found = circles(&[
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "use crate::b::Made;\npub struct A;"),
        (
            "b.rs",
            "make!(Made);\nfn f() -> crate::a::A { crate::a::A { ..crate::a::A::new() } }",
        ),
    ]);
    assert_eq!(found, ["a.rs -> b.rs (Made) -> a.rs (A)"]);
}

#[test]
fn each_circle_is_named_once_the_shortest_first() {
    let found = circles(&[
        ("lib.rs", "mod a; mod b; mod c; mod d;"),
        ("a.rs", "use crate::b::B; pub struct A;"),
        ("b.rs", "use crate::c::C; pub struct B;"),
        ("c.rs", "use crate::a::A; use crate::d::D; pub struct C;"),
        ("d.rs", "use crate::c::C; pub struct D;"),
    ]);
    assert_eq!(
        found,
        [
            "c.rs -> d.rs (D) -> c.rs (C)",
            "a.rs -> b.rs (B) -> c.rs (C) -> a.rs (A)",
        ]
    );
}
