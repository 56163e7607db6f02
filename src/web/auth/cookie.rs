//! The session's cookie: HttpOnly, SameSite=Lax, and over https Secure and bound to this host.

use axum::http::{HeaderMap, HeaderValue, header};
use secrecy::{ExposeSecret, SecretString};

fn name(public_url: &str) -> &'static str {
    // Browsers take a name with this prefix only from a secure page, for this host, without a domain.
    if public_url.starts_with("https:") {
        "__Host-trainyard"
    } else {
        "trainyard"
    }
}

pub fn read(headers: &HeaderMap, public_url: &str) -> Option<String> {
    let wanted = name(public_url);
    headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find(|(name, value)| *name == wanted && !value.is_empty())
        .map(|(_, value)| value.to_owned())
}

pub fn set(secret: &SecretString, seconds: i64, public_url: &str) -> Option<HeaderValue> {
    write(secret.expose_secret(), seconds, public_url)
}

pub fn clear(public_url: &str) -> Option<HeaderValue> {
    write("", 0, public_url)
}

fn write(value: &str, seconds: i64, public_url: &str) -> Option<HeaderValue> {
    let secure = if public_url.starts_with("https:") {
        "; Secure"
    } else {
        ""
    };
    let text = format!(
        "{}={value}; Path=/; HttpOnly; SameSite=Lax; Max-Age={seconds}{secure}",
        name(public_url)
    );
    HeaderValue::from_str(&text).ok()
}
