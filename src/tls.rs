//! HTTP clients of this process, whose TLS is rustls with ring. Two crypto providers in one process, or none, make the
//! first client panic.

/// Where every client begins.
pub fn client() -> reqwest::ClientBuilder {
    // Refused only when there is a provider already, which is this one: no other is built in.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
}
