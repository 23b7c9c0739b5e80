//! Media types of images and files: the first bytes decide, then the given type in any spelling.

use serde_json::json;

use super::*;

const PNG: &str = "iVBORw0KGgoAAAANSUhEUg==";
const JPEG: &str = "/9j/4AAQSkZJRgABAQ==";
const GIF: &str = "R0lGODlhAQABAAAAACw=";
const WEBP: &str = "UklGRiQAAABXRUJQVlA4IA==";
const WAV: &str = "UklGRiQAAABXQVZFZm10IA==";
const PDF: &str = "JVBERi0xLjQKJcOkw7zDtg==";

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn anthropic_gets_the_type_that_the_bytes_have() {
    for (url, kind, media_type, data) in [
        (
            format!("data:image/jpg;base64,{JPEG}"),
            "image",
            "image/jpeg",
            JPEG,
        ),
        (
            format!("data:IMAGE/PNG;base64,{PNG}"),
            "image",
            "image/png",
            PNG,
        ),
        (
            format!("DATA:image/png;BASE64,{PNG}"),
            "image",
            "image/png",
            PNG,
        ),
        (
            format!("data:image/jpeg;base64,{PNG}"),
            "image",
            "image/png",
            PNG,
        ),
        (format!("data:;base64,{GIF}"), "image", "image/gif", GIF),
        (
            format!("data:application/octet-stream;base64,{WEBP}"),
            "image",
            "image/webp",
            WEBP,
        ),
        (
            format!("data:image/png;charset=utf-8;base64,{JPEG}"),
            "image",
            "image/jpeg",
            JPEG,
        ),
        (PNG.to_owned(), "image", "image/png", PNG),
        (
            "data:image/jpg;base64,AAAA".to_owned(),
            "image",
            "image/jpeg",
            "AAAA",
        ),
        (
            "data:Image/X-PNG;base64,AAAA".to_owned(),
            "image",
            "image/png",
            "AAAA",
        ),
        (
            format!("data:application/pdf;base64,{PDF}"),
            "document",
            "application/pdf",
            PDF,
        ),
        (
            format!("data:image/png;base64,{PDF}"),
            "document",
            "application/pdf",
            PDF,
        ),
    ] {
        let image = json!({ "type": "image_url", "image_url": { "url": url } });
        let file = json!({ "type": "file", "file": { "file_data": url, "filename": "a" } });
        for part in [image, file] {
            let body = json!({ "messages": [{ "role": "user", "content": [part] }] });
            let block = &request(ChatToMessages, &body).unwrap()["messages"][0]["content"][0];
            let source = json!({ "type": "base64", "media_type": media_type, "data": data });
            assert_eq!(
                (&block["type"], &block["source"]),
                (&json!(kind), &source),
                "{part}"
            );
        }
        let input = json!({ "input": [{ "role": "user", "content": [{ "type": "input_image", "image_url": url }] }] });
        let sent = &request(ResponsesToChat, &input).unwrap()["messages"][0]["content"][0];
        assert_eq!(
            sent["image_url"]["url"],
            format!("data:{media_type};base64,{data}")
        );
    }
    for url in [
        format!("data:image/tiff;base64,{WAV}"),
        "data:image/png,x".to_owned(),
        "data:;base64,AAAA".to_owned(),
        "not base64".to_owned(),
        String::new(),
    ] {
        let part = json!({ "type": "image_url", "image_url": { "url": url } });
        let body = json!({ "messages": [{ "role": "user", "content": [part] }] });
        let error = request(ChatToMessages, &body).unwrap_err().to_string();
        assert!(
            error.contains("messages[0].content[0].image_url.url"),
            "{error}"
        );
    }
}

#[test]
fn a_chat_server_gets_the_type_that_the_bytes_have() {
    for (given, data, media_type) in [
        (json!("image/jpg"), JPEG, "image/jpeg"),
        (json!("IMAGE/PNG"), PNG, "image/png"),
        (json!("image/png"), GIF, "image/gif"),
        (json!(null), WEBP, "image/webp"),
        (json!("image/jpg"), "AAAA", "image/jpeg"),
        (json!("image/png"), "iVBOR", "image/png"),
    ] {
        let source = json!({ "type": "base64", "media_type": given, "data": data });
        let body = json!({ "messages": [{ "role": "user", "content": [{ "type": "image", "source": source }] }] });
        let url = &request(MessagesToChat, &body).unwrap()["messages"][0]["content"][0]["image_url"]
            ["url"];
        assert_eq!(
            url,
            &json!(format!("data:{media_type};base64,{data}")),
            "{given}"
        );
    }
    let source = json!({ "type": "base64", "data": "AAAA" });
    let body = json!({ "messages": [{ "role": "user", "content": [{ "type": "image", "source": source }] }] });
    let error = request(MessagesToChat, &body).unwrap_err().to_string();
    assert!(error.contains("source.media_type"), "{error}");
}
