use std::os::unix::fs::PermissionsExt as _;

use super::*;

/// Name, kind, and content or link target of an entry.
type Entry<'a> = (&'a str, EntryType, &'a str);

/// Makes an archive of these entries, as another program might have made it.
fn made(folder: &Path, entries: &[Entry<'_>]) -> PathBuf {
    let path = folder.join("made.tar.gz");
    let gzip = GzEncoder::new(File::create(&path).unwrap(), Compression::fast());
    let mut builder = Builder::new(gzip);
    for (name, kind, content) in entries {
        let mut header = Header::new_gnu();
        // The name is written into the header directly, because the crate itself refuses names that lead out.
        let field = &mut header.as_old_mut().name;
        field[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(*kind);
        header.set_mode(0o644);
        if kind.is_symlink() {
            header.set_size(0);
            header.set_link_name(content).unwrap();
            header.set_cksum();
            builder.append(&header, io::empty()).unwrap();
        } else {
            header.set_size(content.len() as u64);
            header.set_cksum();
            builder.append(&header, content.as_bytes()).unwrap();
        }
    }
    builder.into_inner().unwrap().finish().unwrap();
    path
}

fn refusal(folder: &Path, archive: &Path) -> String {
    let error = unpack(archive, &folder.join("out")).unwrap_err();
    format!("{error:#}")
}

#[test]
fn what_was_packed_is_unpacked_and_the_same_files_make_the_same_archive() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("run"), "#!/bin/sh\n").unwrap();
    fs::write(at("text"), "words").unwrap();
    let files = ["run", "text"].map(|name| Packed {
        from: at(name),
        name: format!("share/{name}"),
        is_program: name == "run",
    });
    let mut turned = files.clone();
    turned.reverse();
    pack("top-1", &files, &at("a.tar.gz")).unwrap();
    pack("top-1", &turned, &at("b.tar.gz")).unwrap();
    let [a, b] = ["a.tar.gz", "b.tar.gz"].map(|name| fs::read(at(name)).unwrap());
    assert!(a == b);
    unpack(&at("a.tar.gz"), &at("out")).unwrap();
    assert_eq!(fs::read(at("out/share/text")).unwrap(), b"words");
    let mode = |name: &str| fs::metadata(at(name)).unwrap().permissions().mode();
    assert_eq!(mode("out/share/run") & 0o111, 0o111 & mode("out/share/run"));
    assert_ne!(mode("out/share/run") & 0o100, 0);
    assert_eq!(mode("out/share/text") & 0o111, 0);
    let size = unpacked_size(&at("a.tar.gz")).unwrap();
    assert!(size > 15 && size.is_multiple_of(512), "{size}");
}

#[test]
fn an_archive_that_is_cut_anywhere_or_has_a_wrong_byte_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let text = "some words\n".repeat(400);
    let archive = made(folder.path(), &[("top/a", EntryType::Regular, &text)]);
    let whole = fs::read(&archive).unwrap();
    let broken = folder.path().join("broken.tar.gz");
    let cuts = (0..whole.len()).step_by(7).chain([whole.len() - 1]);
    for (step, cut) in cuts.enumerate() {
        fs::write(&broken, &whole[..cut]).unwrap();
        let out = folder.path().join(format!("out-{step}"));
        let error = unpack(&broken, &out).unwrap_err().to_string();
        assert!(error.contains("is no whole .tar.gz"), "{cut}: {error}");
    }
    let mut flipped = whole.clone();
    let at = whole.len() - 6;
    flipped[at] ^= 1;
    fs::write(&broken, &flipped).unwrap();
    let error = refusal(folder.path(), &broken);
    assert!(error.contains("is no whole .tar.gz"), "{error}");
}

#[test]
fn names_that_lead_out_links_and_second_folders_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name| (name, EntryType::Regular, "x");
    let link = ("top/link", EntryType::Symlink, "/etc/passwd");
    for (entries, why) in [
        (
            vec![file("top/../../evil")],
            "leads out of the archive's folder",
        ),
        (vec![file("/etc/evil")], "leads out of the archive's folder"),
        (
            vec![file("top/a"), file("other/a")],
            "lies beside the archive's folder top",
        ),
        (vec![link], "neither a file nor a folder"),
        (vec![], "is empty"),
    ] {
        let archive = made(folder.path(), &entries);
        let error = refusal(folder.path(), &archive);
        assert!(error.contains(why), "{error}");
        fs::remove_dir_all(folder.path().join("out")).unwrap();
    }
    assert!(!folder.path().join("evil").exists());
}
