use super::read;

#[test]
fn use_trees_are_read_to_their_leaves() {
    let text = "pub(crate) use a::{self, b::{c as d, *}, e};\nuse ::std::io;";
    let scopes = read(text).unwrap();
    let leaves: Vec<_> = scopes[0]
        .imports
        .iter()
        .map(|import| {
            (
                import.path.join("::"),
                import.name.as_deref(),
                import.is_reexport,
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
fn types_and_tuple_parameters_of_test_code_are_left_out() {
    let text = "
        struct A;
        fn takes((a, b): (u8, u8), c: &(u8, u8), d: &[(u8, u8)]) { struct Inside; }
        impl Iterator for A { fn next(x: (u8, u8)) {} }
        impl A { fn of(self, pair: (u8, u8)) {} }
        #[cfg(test)]
        impl A { fn tested(pair: (u8, u8)) {} }
        #[cfg(test)]
        struct B;
        #[cfg(all(test, unix))]
        mod tests { struct C; fn t(pair: (u8, u8)) {} mod deeper { struct D; } }
        #[cfg(not(test))]
        type E = A;
    ";
    let scopes = read(text).unwrap();
    let names = |named: &[super::NamedItem]| {
        let names = named.iter().map(|named| named.name.clone());
        names.collect::<Vec<_>>().join(" ")
    };
    let types = scopes.iter().map(|scope| names(&scope.types));
    assert_eq!(types.collect::<Vec<_>>(), ["A Inside E", "", ""]);
    let tuples = scopes.iter().map(|scope| names(&scope.tuples));
    assert_eq!(tuples.collect::<Vec<_>>(), ["takes takes of", "", ""]);
}
