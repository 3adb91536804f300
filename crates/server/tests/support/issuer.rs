//! A local issuer of bearer tokens.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use quire_engine::Clock;
use quire_server::{OidcConfig, SystemClock};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, RSA_PKCS1_SHA256, RsaKeyPair};
use serde_json::{Value, json};

use super::{TestServer, start_with};

/// A key for these tests, which protects nothing: ring cannot generate RSA keys.
const RSA_KEY: &[u8] = include_bytes!("../data/issuer-rsa.der");

pub struct LocalIssuer {
    pub url: String,
    pub keys: Arc<Mutex<Value>>,
    pub requests: Arc<AtomicUsize>,
    pub rsa: RsaKeyPair,
    pub curve: EcdsaKeyPair,
}

impl LocalIssuer {
    pub fn start() -> LocalIssuer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let rsa = RsaKeyPair::from_pkcs8(RSA_KEY).unwrap();
        let curve = new_curve_key();
        let keys = Arc::new(Mutex::new(json!({"keys": [rsa_jwk("rsa", &rsa), curve_jwk("curve", &curve)]})));
        let requests = Arc::new(AtomicUsize::new(0));
        let served = (url.clone(), keys.clone(), requests.clone());
        std::thread::spawn(move || serve(&listener, &served.0, &served.1, &served.2));
        LocalIssuer { url, keys, requests, rsa, curve }
    }

    pub fn server(&self) -> TestServer {
        let config = OidcConfig::new(self.url.clone(), "quire-tests");
        start_with(|server| server.oidc = Some(config))
    }

    pub fn claims(&self, roles: &Value) -> Value {
        let now = SystemClock.now_ms() / 1000;
        json!({"iss": self.url, "aud": "quire-tests", "exp": now + 600, "nbf": now - 10, "roles": roles})
    }

    pub fn rs256(&self, claims: &Value) -> String {
        token(&json!({"alg": "RS256", "kid": "rsa", "typ": "JWT"}), claims, |text| sign_rsa(&self.rsa, text))
    }

    pub fn es256(&self, kid: &str, claims: &Value) -> String {
        token(&json!({"alg": "ES256", "kid": kid}), claims, |text| sign_curve(&self.curve, text))
    }
}

fn serve(listener: &TcpListener, url: &str, keys: &Mutex<Value>, requests: &AtomicUsize) {
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        let mut line = String::new();
        BufReader::new(stream.try_clone().unwrap()).read_line(&mut line).unwrap();
        requests.fetch_add(1, Ordering::Relaxed);
        let body = if line.contains("openid-configuration") {
            json!({"issuer": url, "jwks_uri": format!("{url}/keys")}).to_string()
        } else {
            keys.lock().to_string()
        };
        let length = body.len();
        let head =
            format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n");
        stream.write_all((head + &body).as_bytes()).unwrap();
    }
}

pub fn new_curve_key() -> EcdsaKeyPair {
    let random = SystemRandom::new();
    let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
    EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, document.as_ref(), &random).unwrap()
}

pub fn rsa_jwk(kid: &str, key: &RsaKeyPair) -> Value {
    let public = ring::rsa::PublicKeyComponents::<Vec<u8>>::from(key.public());
    json!({"kty": "RSA", "kid": kid, "use": "sig", "n": encoded(&public.n), "e": encoded(&public.e)})
}

pub fn curve_jwk(kid: &str, key: &EcdsaKeyPair) -> Value {
    let point = key.public_key().as_ref();
    json!({"kty": "EC", "kid": kid, "crv": "P-256", "x": encoded(&point[1..33]), "y": encoded(&point[33..65])})
}

pub fn sign_rsa(key: &RsaKeyPair, text: &[u8]) -> Vec<u8> {
    let mut signature = vec![0; key.public().modulus_len()];
    key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), text, &mut signature).unwrap();
    signature
}

pub fn sign_curve(key: &EcdsaKeyPair, text: &[u8]) -> Vec<u8> {
    key.sign(&SystemRandom::new(), text).unwrap().as_ref().to_vec()
}

pub fn encoded(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

pub fn token(header: &Value, claims: &Value, sign: impl FnOnce(&[u8]) -> Vec<u8>) -> String {
    let text =
        format!("{}.{}", encoded(header.to_string().as_bytes()), encoded(claims.to_string().as_bytes()));
    let signature = sign(text.as_bytes());
    format!("{text}.{}", encoded(&signature))
}
