//! Tokens that expire when a test wants it. Kubernetes itself gives none for less than ten minutes, so we sign them with its own key.

use crate::cluster::Testbed;
use crate::components::apiserver::ISSUER;
use crate::error::{Doing, Error, Result, refused};
use data_encoding::BASE64URL_NOPAD;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::{Api, Client};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use serde_json::json;
use std::time::Duration;

/// The API server takes a token that long after its end, to forgive clocks that go wrong.
const LEEWAY: i64 = 60;

/// A token of a service account that is refused after `life`. The API server remembers a good answer for ten seconds, so it may
/// be that much later.
pub async fn expiring(
    testbed: &Testbed,
    client: &Client,
    namespace: &str,
    account: &str,
    life: Duration,
) -> Result<String> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let uid = accounts
        .get(account)
        .await
        .doing("cannot read a service account")?
        .metadata
        .uid
        .unwrap_or_default();
    let now = chrono::Utc::now().timestamp();
    let claims = json!({
        "aud": [ISSUER], "iss": ISSUER, "sub": format!("system:serviceaccount:{namespace}:{account}"),
        "iat": now - 2 * LEEWAY, "nbf": now - 2 * LEEWAY, "exp": now - LEEWAY + life.as_secs() as i64,
        "kubernetes.io": {"namespace": namespace, "serviceaccount": {"name": account, "uid": uid}},
    });
    let encode = |value: &serde_json::Value| BASE64URL_NOPAD.encode(value.to_string().as_bytes());
    let signed = format!("{}.{}", encode(&json!({"alg": "ES256", "typ": "JWT"})), encode(&claims));
    let random = SystemRandom::new();
    let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &key(testbed)?, &random)
        .map_err(|e| refused("the token key")(&e))?;
    let signature = key
        .sign(&random, signed.as_bytes())
        .map_err(|_| Error::Refused("cannot sign a token".into()))?;
    Ok(format!("{signed}.{}", BASE64URL_NOPAD.encode(signature.as_ref())))
}

fn key(testbed: &Testbed) -> Result<Vec<u8>> {
    let pem = std::fs::read_to_string(testbed.layout.pki("tokens.key")).doing("cannot read the token key")?;
    let base64: String = pem.lines().filter(|l| !l.starts_with("-----")).collect();
    data_encoding::BASE64
        .decode(base64.trim().as_bytes())
        .map_err(|e| refused("the token key")(&e))
}
