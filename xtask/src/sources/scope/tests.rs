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
