//! Made-up crates.

use super::{find, source, tokens};

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
fn a_name_that_the_parent_only_passes_down_is_its_owners() {
    let found = circles(&[
        ("main.rs", "mod a;\nmod limit;"),
        (
            "a.rs",
            "mod child;\nuse crate::limit::Limit;\nfn f(l: Limit) { child::g(l) }",
        ),
        ("a/child.rs", "use super::Limit;\npub fn g(l: Limit) {}"),
        ("limit.rs", "pub struct Limit;"),
    ]);
    assert_eq!(found, [""; 0]);
}

#[test]
fn test_code_comments_and_strings_import_nothing() {
    let tested = r##"
        pub struct B<'a>(&'a str);
        /* use crate::a::A; /* nested */ */
        // crate::a::A
        const S: &str = "crate::a::A";
        const R: &str = r#"" crate::a::A"#;
        const C: char = '"';
        #[cfg(test)]
        use crate::a::A;
        #[cfg(test)]
        fn helper<T, U>(a: crate::a::A) -> [u8; 2] { crate::a::A; [0; 2] }
        struct Hooks { #[cfg(test)] hook: crate::a::A, other: u8 }
        #[cfg(all(test, unix))]
        mod tests { use crate::a::A; }
        #[cfg(test)]
        mod far;
    "##;
    let found = circles(&[
        LIB,
        ("a.rs", "pub struct A(crate::b::B<'static>);"),
        ("b.rs", tested),
        ("c.rs", "#![cfg(test)]\nuse crate::a::A;"),
    ]);
    assert_eq!(found, [""; 0]);
    let found = circles(&[
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "pub struct A(crate::b::B);"),
        ("b.rs", "#[cfg(not(test))] use crate::a::A; pub struct B;"),
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
        ("b.rs", "make!(Made);\npub struct B;\nuse crate::a::*;"),
        ("prelude.rs", "pub use crate::b::{B as B2, Made};"),
    ]);
    assert_eq!(
        found, [""; 0],
        "a's B2 comes by a glob, which cannot be told; its B is tokio's"
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

#[test]
fn use_trees_are_read_to_their_leaves() {
    let scopes = source::read("pub(crate) use a::{self, b::{c as d, *}, e};\nuse ::std::io;");
    let leaves: Vec<_> = scopes[0]
        .imports
        .iter()
        .map(|import| {
            (
                import.path.join("::"),
                import.name.as_deref(),
                import.is_handed_on,
            )
        })
        .collect();
    let expected = [
        ("a", Some("a")),
        ("a::b::c", Some("d")),
        ("a::b", None),
        ("a::e", Some("e")),
    ];
    let expected: Vec<_> = expected
        .map(|(path, name)| (path.to_owned(), name, true))
        .into();
    assert_eq!(leaves, expected);
}

#[test]
fn broken_text_ends() {
    for text in [
        "/*",
        "\"",
        "r#\"",
        "'",
        "use a::{",
        "#[cfg(test)]",
        "#[",
        "}}}",
        "mod x {",
    ] {
        let _ = tokens::tokens(text);
        let _ = source::read(text);
    }
}
