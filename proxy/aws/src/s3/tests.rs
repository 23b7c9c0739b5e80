//! Answers as AWS, MinIO and R2 write them.

use super::*;

const PAGE_ONE: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>team</Name><Prefix>skills/</Prefix><NextContinuationToken>1ueGcxLPRx1Tr/XYExHnhbYLgveDs2J/wm36Hy4vbOwM=</NextContinuationToken><KeyCount>3</KeyCount><MaxKeys>3</MaxKeys><Delimiter>%2F</Delimiter><EncodingType>url</EncodingType><IsTruncated>true</IsTruncated><Contents><Key>skills/notes.md</Key><LastModified>2026-10-12T17:50:30.000Z</LastModified><ETag>&quot;fba9dede5f27731c9771645a39863328&quot;</ETag><Size>434234</Size><StorageClass>STANDARD</StorageClass></Contents><CommonPrefixes><Prefix>skills/desktop-90ab12cd/</Prefix></CommonPrefixes><CommonPrefixes><Prefix>skills%2Flaptop-3f2a9c01%2F</Prefix></CommonPrefixes><CommonPrefixes><Prefix>skills/%01%2E%2E/</Prefix></CommonPrefixes></ListBucketResult>"#;

fn location(place: &str, endpoint: Option<&str>) -> S3Location {
    S3Location::parse(place, endpoint, "eu-west-1").unwrap()
}

#[test]
fn a_page_of_folders_is_read_and_the_next_one_is_requested() {
    let team = location("s3://team/skills/", None);
    let page = team.folders(PAGE_ONE).unwrap();
    let names = ["desktop-90ab12cd", "laptop-3f2a9c01", "\u{1}.."];
    assert_eq!(page.folders, names);
    let base = "https://team.s3.eu-west-1.amazonaws.com/?";
    let query = "delimiter=%2F&encoding-type=url&list-type=2&max-keys=1000&prefix=skills%2F";
    assert_eq!(team.folders_url(None), format!("{base}{query}"));
    let token = "continuation-token=1ueGcxLPRx1Tr%2FXYExHnhbYLgveDs2J%2Fwm36Hy4vbOwM%3D";
    assert_eq!(
        team.folders_url(page.continuation.as_deref()),
        format!("{base}{token}&{query}")
    );
    let empty = "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>";
    assert_eq!(team.folders(empty), Ok(S3Listing::default()));
}

#[test]
fn what_is_no_list_is_refused() {
    let team = location("s3://team", None);
    let deep = "<a>".repeat(100) + &"</a>".repeat(100);
    let half = "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>";
    for wrong in [
        "",
        "<html><body>Sign in</body></html>",
        "<ListBucketResult><Name>",
        "<ListBucketResult></Name>",
        "{}",
        half,
        &deep,
    ] {
        assert!(team.folders(wrong).is_err(), "{wrong}");
    }
    let bomb = r#"<!DOCTYPE x [<!ENTITY a "aaaa">]><ListBucketResult><IsTruncated>&a;</IsTruncated></ListBucketResult>"#;
    assert_eq!(team.folders(bomb), Ok(S3Listing::default()));
}

#[test]
fn an_error_names_its_code_and_message_and_no_more() {
    let aws = "<?xml version=\"1.0\"?>\n<Error><Code>SignatureDoesNotMatch</Code><Message>The request signature we calculated &apos;differs&apos;.</Message><AWSAccessKeyId>AKIA1</AWSAccessKeyId><StringToSign>AWS4</StringToSign></Error>";
    let refusal = S3Refusal::read(aws);
    assert_eq!(refusal.code, "SignatureDoesNotMatch");
    assert_eq!(
        refusal.message,
        "The request signature we calculated 'differs'."
    );
    assert_eq!(S3Refusal::read("<html>502</html>"), S3Refusal::default());
    let long = format!(
        "<Error><Code>A&#10;B</Code><Message>{}</Message></Error>",
        "x".repeat(5_000)
    );
    let refusal = S3Refusal::read(&long);
    assert_eq!(refusal.code, "A B");
    assert_eq!(refusal.message.chars().count(), 101);
}

#[test]
fn an_object_has_one_address_whatever_its_name() {
    let parts = ["laptop-1", "_shared", "sql ü+%", "SKILL.md"];
    let end = "laptop-1/_shared/sql%20%C3%BC%2B%25/SKILL.md";
    #[rustfmt::skip]
    let cases = [
        ("s3://team", None, "https://team.s3.eu-west-1.amazonaws.com"),
        ("s3://my.team/a/b", None, "https://s3.eu-west-1.amazonaws.com/my.team/a/b"),
        ("s3://team/x", Some("http://127.0.0.1:9000/"), "http://127.0.0.1:9000/team/x"),
    ];
    for (place, endpoint, base) in cases {
        let location = location(place, endpoint);
        assert_eq!(location.object_url(&parts), format!("{base}/{end}"));
    }
    let china = S3Location::parse("s3://team", None, "cn-north-1").unwrap();
    let url = china.object_url(&["a"]);
    assert_eq!(url, "https://team.s3.cn-north-1.amazonaws.com.cn/a");
    assert_eq!(china.object_name(&["a", "b"]), "s3://team/a/b");
}

#[test]
fn places_endpoints_and_regions_of_another_form_are_refused() {
    for place in [
        "team/skills",
        "s3://",
        "s3://a",
        "s3://Team",
        "s3://te..am",
        "s3://team//x",
        "s3://team/../x",
        "s3://team/x y",
        "s3://team?x",
        "https://team.s3.amazonaws.com",
    ] {
        assert!(S3Location::parse(place, None, "r").is_err(), "{place}");
    }
    for endpoint in [
        "minio:9000",
        "ftp://h",
        "https://h/path",
        "https://user:pass@h",
        "https://h?x",
        "",
    ] {
        let parsed = S3Location::parse("s3://team", Some(endpoint), "r");
        assert!(parsed.is_err(), "{endpoint}");
    }
    for region in ["", "EU", "a/b", "a.b"] {
        assert!(S3Location::parse("s3://team", None, region).is_err());
    }
}
