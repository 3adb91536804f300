//! Signatures of bearer tokens: `jsonwebtoken` reads and validates them, ring does the cryptography.
//!
//! Verifying only, and only with public keys: there is no signer, and no HMAC verifier that a public key could be
//! passed to as a secret.

use jsonwebtoken::crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::signature::{self, Verifier};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind, EncodingKey};
use ring::signature as ring_signature;
use ring::signature::{RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm};

/// The algorithms that a token may be signed with.
pub(super) const ALGORITHMS: [Algorithm; 7] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];

/// Makes ring the provider of the process, unless one is set already.
pub(super) fn install() {
    static PROVIDER: CryptoProvider = CryptoProvider {
        signer_factory: no_signer,
        verifier_factory: verifier,
        key_utils: KeyUtils::new_unimplemented(),
    };
    if PROVIDER.install_default().is_err() {
        tracing::debug!("a provider of token cryptography is installed already");
    }
}

fn no_signer(_: &Algorithm, _: &EncodingKey) -> Result<Box<dyn JwtSigner>, Error> {
    Err(ErrorKind::UnsupportedAlgorithm.into())
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>, Error> {
    let scheme = Scheme::of(*algorithm).ok_or(ErrorKind::UnsupportedAlgorithm)?;
    if key.family() != algorithm.family() || key.family() == AlgorithmFamily::Hmac {
        return Err(ErrorKind::InvalidKeyFormat.into());
    }
    Ok(Box::new(RingVerifier { algorithm: *algorithm, scheme, key: key.clone() }))
}

struct RingVerifier {
    algorithm: Algorithm,
    scheme: Scheme,
    key: DecodingKey,
}

enum Scheme {
    Rsa(&'static RsaParameters),
    Curve(&'static dyn VerificationAlgorithm),
}

impl Scheme {
    fn of(algorithm: Algorithm) -> Option<Scheme> {
        Some(match algorithm {
            Algorithm::RS256 => Scheme::Rsa(&ring_signature::RSA_PKCS1_2048_8192_SHA256),
            Algorithm::RS384 => Scheme::Rsa(&ring_signature::RSA_PKCS1_2048_8192_SHA384),
            Algorithm::RS512 => Scheme::Rsa(&ring_signature::RSA_PKCS1_2048_8192_SHA512),
            Algorithm::PS256 => Scheme::Rsa(&ring_signature::RSA_PSS_2048_8192_SHA256),
            Algorithm::ES256 => Scheme::Curve(&ring_signature::ECDSA_P256_SHA256_FIXED),
            Algorithm::ES384 => Scheme::Curve(&ring_signature::ECDSA_P384_SHA384_FIXED),
            Algorithm::EdDSA => Scheme::Curve(&ring_signature::ED25519),
            _ => return None,
        })
    }
}

impl Verifier<Vec<u8>> for RingVerifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), signature::Error> {
        let verified = match (&self.scheme, self.key.kind()) {
            (Scheme::Rsa(scheme), DecodingKeyKind::RsaModulusExponent { n, e }) => {
                RsaPublicKeyComponents { n, e }.verify(scheme, message, signature)
            }
            (Scheme::Curve(scheme), DecodingKeyKind::SecretOrDer(point)) => {
                UnparsedPublicKey::new(*scheme, point).verify(message, signature)
            }
            _ => return Err(signature::Error::new()),
        };
        verified.map_err(|_| signature::Error::new())
    }
}

impl JwtVerifier for RingVerifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}
