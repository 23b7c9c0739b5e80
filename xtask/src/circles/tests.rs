//! Made-up crates.

use std::path::Path;

use super::find;

/// Writes the files of a crate and looks for circles from the first one on. A line that begins with a name in `.rs`
/// begins a file, and those that begin with `=` are the circles that it must find, in order.
#[track_caller]
fn check(crate_text: &str) {
    let folder = tempfile::tempdir().unwrap();
    let (mut files, mut expected): (Vec<(&str, String)>, Vec<&str>) = (Vec::new(), Vec::new());
    let is_file = |name: &str| Path::new(name).extension().is_some_and(|end| end == "rs");
    for line in crate_text.lines().map(str::trim) {
        match line.split_once(": ") {
            _ if line.starts_with("= ") => expected.push(&line[2..]),
            Some((name, text)) if is_file(name) => files.push((name, text.to_owned())),
            _ => files.last_mut().unwrap().1.extend(["\n", line]),
        }
    }
    for (path, text) in &files {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let found = find(folder.path(), &folder.path().join(files[0].0)).unwrap();
    assert_eq!(found, expected, "{crate_text}");
}

/// Checks several crates with a blank line between them.
#[track_caller]
fn check_all(crates: &str) {
    crates.trim().split("\n\n").for_each(check);
}

#[test]
fn files_that_import_each_other_directly_or_through_others_are_a_circle() {
    check_all(
        "lib.rs: mod a; mod b; mod c; pub use self::a::A;
         a.rs: use crate::b::{B, more}; pub struct A(B);
         b.rs: pub struct B; pub fn more(a: &crate::a::A) {}
         c.rs: use crate::a::A;
         = a.rs -> b.rs (B, more) -> a.rs (A)

         lib.rs: mod a; mod b; mod c; pub use self::a::A;
         a.rs: use super::b; pub struct A; fn f() { b::g() }
         b.rs: pub fn g() { crate::c::h::<u8>() }
         c.rs: use crate::A as Other; pub fn h<T>() {}
         = a.rs -> b.rs (g) -> c.rs (h) -> a.rs (A)",
    );
}

#[test]
fn one_direction_is_no_circle() {
    check(
        "lib.rs: mod a; mod b; mod c; pub use self::a::A;
         a.rs: use crate::b::B; use crate::c::C; pub struct A(B, C);
         b.rs: use crate::c::C; pub struct B(C);
         c.rs: pub struct C; mod inside { use super::C; }",
    );
}

#[test]
fn a_parent_that_hands_on_is_none_and_one_that_uses_is() {
    check_all(
        "lib.rs: mod a;
         a.rs: mod child; pub use child::Child; pub struct Limit;
         a/child.rs: use super::Limit; pub struct Child(Limit);

         lib.rs: mod a;
         a.rs: mod child; pub use child::Child; pub struct Limit; struct Both(Child);
         a/child.rs: use super::Limit; pub struct Child(Limit);
         = a.rs -> a/child.rs (Child) -> a.rs (Limit)",
    );
}

#[test]
fn a_name_that_the_parent_hands_down_is_an_import_of_the_parent() {
    check_all(
        "main.rs: mod a; mod limit;
         a.rs: mod child; use crate::limit::Limit; fn f(l: Limit) { child::g(l) }
         a/child.rs: use super::Limit; pub fn g(l: Limit) {}
         limit.rs: pub struct Limit;
         = a.rs -> a/child.rs (g) -> a.rs (Limit)

         main.rs: mod a; mod limit;
         a.rs: mod child; use crate::limit::Limit; fn f(l: Limit) { child::g(l) }
         a/child.rs: use crate::limit::Limit; pub fn g(l: Limit) {}
         limit.rs: pub struct Limit;",
    );
}

#[test]
fn a_reexport_is_an_import_of_both_files() {
    check_all(
        "lib.rs: mod a; mod b;
         a.rs: mod purse; pub use purse::Purse; use crate::b::B;
         a/purse.rs: pub struct Purse;
         b.rs: pub struct B(crate::a::Purse);
         = a.rs -> b.rs (B) -> a.rs (Purse)

         lib.rs: mod a; mod b;
         a.rs: mod purse; pub use purse::Purse;
         a/purse.rs: pub struct Purse(crate::b::B);
         b.rs: pub struct B(crate::a::Purse);
         = a/purse.rs -> b.rs (B) -> a/purse.rs (Purse)

         lib.rs: mod a; mod b;
         a.rs: pub use crate::b::B; pub struct A;
         b.rs: pub struct B(crate::a::A);
         = a.rs -> b.rs (B) -> a.rs (A)",
    );
}

#[test]
fn test_code_imports_as_all_other_code() {
    check_all(
        "lib.rs: mod a; mod b; #[cfg(test)] mod far;
         a.rs: pub struct A(crate::b::B);
         b.rs: pub struct B; #[cfg(test)] mod tests { use crate::a::A; }
         far.rs: use crate::a::*; fn f() { assert!(crate::b::B); }
         = a.rs -> b.rs (B) -> a.rs (A)

         lib.rs: mod a;
         a.rs: #[cfg(test)] #[path = \"other/t.rs\"] mod tests; fn a() {}
         other/t.rs: use super::*;",
    );
}

#[test]
fn comments_and_strings_import_nothing_and_arguments_of_macros_are_read() {
    check_all(
        r##"lib.rs: mod a; mod b; mod c; pub use self::a::A;
         a.rs: pub struct A(crate::b::B<'static>);
         b.rs: pub struct B<'a>(&'a str);
         /* use crate::a::A; /* nested */ */
         // crate::a::A
         const S: &str = "crate::a::A";
         const R: &str = r#"" crate::a::A"#;
         fn f(s: &B) { print!("crate::a::A {}", s.a::A) }
         c.rs: const NOTHING: u8 = 0;

         lib.rs: mod a; mod b;
         a.rs: pub struct A(crate::b::B);
         b.rs: pub struct B; fn f() { assert_eq!(1, [crate::a::A::n()]) }
         = a.rs -> b.rs (B) -> a.rs (A)"##,
    );
}

/// A glob imports the file, and what is used of it.
#[test]
fn globs_macros_and_other_crates_are_told_apart() {
    check_all(
        "lib.rs: mod a; mod b; mod prelude;
         a.rs: use crate::prelude::*; use tokio::b::B; pub struct A; fn f(b: B2) {}
         b.rs: make!(Made); pub struct B;
         prelude.rs: pub use crate::b::{B as B2, Made};

         lib.rs: mod a; mod b; mod prelude;
         a.rs: use crate::prelude::*; pub struct A; fn f(b: B2) {}
         b.rs: pub struct B; use crate::a::*;
         prelude.rs: pub use crate::b::B as B2;
         = a.rs -> b.rs (B) -> a.rs (*)
         = a.rs -> prelude.rs (*) -> b.rs (B) -> a.rs (*)

         lib.rs: mod a; mod b;
         a.rs: use tokio::b::B; use ::b::B2; use serde as b; pub struct A(B);
         b.rs: pub struct B(crate::a::A);

         lib.rs: mod a; mod b;
         a.rs: use crate::b::Made; pub struct A;
         b.rs: make!(Made); fn f() -> crate::a::A { crate::a::A { ..crate::a::A::new() } }
         = a.rs -> b.rs (Made) -> a.rs (A)",
    );
}

#[test]
fn each_circle_is_named_once_the_shortest_first() {
    check(
        "lib.rs: mod a; mod b; mod c; mod d;
         a.rs: use crate::b::B; pub struct A;
         b.rs: use crate::c::C; pub struct B;
         c.rs: use crate::a::A; use crate::d::D; pub struct C;
         d.rs: use crate::c::C; pub struct D;
         = c.rs -> d.rs (D) -> c.rs (C)
         = a.rs -> b.rs (B) -> c.rs (C) -> a.rs (A)",
    );
}
