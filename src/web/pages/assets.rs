//! Stylesheet, scripts and marks, inside the binary. Each is served under a name that carries its digest, so that a
//! browser may keep it for ever and still never shows an old one.

use std::sync::OnceLock;

use axum::{
    body::Body,
    extract::Path,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use sha2::{Digest, Sha256};

/// The address of a file by its plain name.
pub fn url(name: &str) -> &'static str {
    files()
        .iter()
        .find(|file| file.name == name)
        .map_or("/static/missing", |file| file.url.as_str())
}

/// `GET /static/{file}`.
pub async fn serve(Path(wanted): Path<String>) -> Response {
    let Some(file) = files()
        .iter()
        .find(|file| file.url.strip_prefix("/static/") == Some(wanted.as_str()))
    else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let mut response = Response::new(Body::from(file.bytes));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(file.kind));
    headers.insert(
        header::CACHE_CONTROL,
        HeaderValue::from_static("public, max-age=31536000, immutable"),
    );
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

struct File {
    name: &'static str,
    kind: &'static str,
    bytes: &'static [u8],
    url: String,
}

fn files() -> &'static [File] {
    static FILES: OnceLock<Vec<File>> = OnceLock::new();
    FILES.get_or_init(|| {
        const JS: &str = "text/javascript; charset=utf-8";
        [
            (
                "app.css",
                "text/css; charset=utf-8",
                &include_bytes!("../../../static/app.css")[..],
            ),
            ("theme.js", JS, &include_bytes!("../../../static/theme.js")[..]),
            ("app.js", JS, &include_bytes!("../../../static/app.js")[..]),
            ("live.js", JS, &include_bytes!("../../../static/live.js")[..]),
            ("logs.js", JS, &include_bytes!("../../../static/logs.js")[..]),
            (
                "marks.svg",
                "image/svg+xml",
                &include_bytes!("../../../static/marks.svg")[..],
            ),
            (
                "icon.svg",
                "image/svg+xml",
                &include_bytes!("../../../static/icon.svg")[..],
            ),
        ]
        .into_iter()
        .map(|(name, kind, bytes)| {
            let digest = data_encoding::HEXLOWER.encode(&Sha256::digest(bytes)[..8]);
            let (stem, extension) = name.split_once('.').unwrap_or((name, ""));
            let url = format!("/static/{stem}.{digest}.{extension}");
            File { name, kind, bytes, url }
        })
        .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stylesheet_stays_small_and_every_name_carries_its_digest() {
        let sheet = &files()[0];
        assert!(sheet.bytes.len() < 30_000, "{} bytes", sheet.bytes.len());
        assert!(files().iter().all(|file| file.url.len() > "/static/..".len() + 16));
    }

    #[tokio::test]
    async fn a_file_is_served_for_ever_and_an_unknown_name_is_not_found() {
        let name = url("app.css").trim_start_matches("/static/").to_owned();
        let found = serve(Path(name)).await;
        assert_eq!(found.status(), StatusCode::OK);
        assert!(
            found.headers()[header::CACHE_CONTROL]
                .to_str()
                .unwrap()
                .contains("immutable")
        );
        assert_eq!(serve(Path("app.css".into())).await.status(), StatusCode::NOT_FOUND);
    }
}
