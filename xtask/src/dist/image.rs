//! The container image: the static program on an empty base, as one tar that `docker load`, `podman load` and `skopeo`
//! read.
//!
//! It is an OCI layout (`oci-layout`, `index.json`, `blobs/`) with the `manifest.json` of `docker save` beside it; both name
//! the same blobs.

use anyhow::Result;
use serde_json::{Value, json};

use super::Product;
use super::archive::{self, Entry};

/// Nobody on any machine; a volume belongs to it.
pub const USER: u64 = 10001;
pub const DATA: &str = "data";
pub const PROGRAM: &str = "usr/bin/quire";

pub fn name(product: &Product) -> String {
    format!("quire-{}-image-{}.tar", product.version, product.short_architecture())
}

/// The image's name once it is loaded.
pub fn tag(product: &Product) -> String {
    format!("quire:{}", product.version)
}

pub fn pack(product: &Product) -> Result<Vec<u8>> {
    let layer = archive::tar(&archive::with_parents(files(product)), product.modified)?;
    let config = Blob::of_json(&config(product, &archive::sha256(&layer)));
    let layer = Blob::new(archive::gzip(&layer, product.compression)?);
    let manifest = Blob::of_json(&json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config.descriptor("application/vnd.oci.image.config.v1+json"),
        "layers": [layer.descriptor("application/vnd.oci.image.layer.v1.tar+gzip")],
    }));
    let mut described = manifest.descriptor("application/vnd.oci.image.manifest.v1+json");
    described["annotations"] = json!({
        "io.containerd.image.name": format!("docker.io/library/{}", tag(product)),
        "org.opencontainers.image.ref.name": product.version,
    });
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [described],
    });
    let for_docker = json!([{"Config": config.path(), "RepoTags": [tag(product)], "Layers": [layer.path()]}]);
    let mut entries = vec![
        Entry::file("oci-layout", json!({"imageLayoutVersion": "1.0.0"}).to_string()),
        Entry::file("index.json", index.to_string()),
        Entry::file("manifest.json", for_docker.to_string()),
    ];
    entries.extend([config, layer, manifest].map(Blob::entry));
    archive::tar(&archive::with_parents(entries), product.modified)
}

/// Nothing of a distribution: no shell, no libraries, no package manager.
fn files(product: &Product) -> Vec<Entry> {
    let owned = |path: &str, mode| Entry { owner: USER, mode, ..Entry::directory(path) };
    let mut files = vec![
        Entry::program(PROGRAM, product.program.clone()),
        Entry::file("etc/passwd", format!("quire:x:{USER}:{USER}::/{DATA}:/nonexistent\n")),
        Entry::file("etc/group", format!("quire:x:{USER}:\n")),
        owned(DATA, 0o700),
        Entry { mode: 0o1777, ..Entry::directory("tmp") },
    ];
    files.extend(product.licence_entries("usr/share/doc/quire"));
    files
}

fn config(product: &Product, layer: &str) -> Value {
    let program = format!("/{PROGRAM}");
    json!({
        "created": product.created,
        "architecture": product.short_architecture(),
        "os": "linux",
        "config": {
            "User": format!("{USER}:{USER}"),
            "ExposedPorts": {"8081/tcp": {}},
            "Env": ["PATH=/usr/bin", "QUIRE_LISTEN=0.0.0.0:8081", format!("QUIRE_DATA=/{DATA}")],
            "Entrypoint": [program],
            "Cmd": ["serve"],
            "Volumes": {format!("/{DATA}"): {}},
            "WorkingDir": format!("/{DATA}"),
            "StopSignal": "SIGTERM",
            // Times are nanoseconds.
            "Healthcheck": {
                "Test": ["CMD", program, "health"],
                "Interval": 10_000_000_000_u64,
                "Timeout": 6_000_000_000_u64,
                "StartPeriod": 30_000_000_000_u64,
                "StartInterval": 1_000_000_000_u64,
                "Retries": 3,
            },
            "Labels": {
                "org.opencontainers.image.title": "Quire",
                "org.opencontainers.image.description":
                    "A document database that speaks the Azure Cosmos DB for NoSQL API",
                "org.opencontainers.image.version": product.version,
                "org.opencontainers.image.licenses": "Apache-2.0",
            },
        },
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{layer}")]},
        "history": [{"created_by": "cargo xtask dist"}],
    })
}

struct Blob {
    digest: String,
    bytes: Vec<u8>,
}

impl Blob {
    fn new(bytes: Vec<u8>) -> Blob {
        Blob { digest: archive::sha256(&bytes), bytes }
    }

    fn of_json(value: &Value) -> Blob {
        Blob::new(value.to_string().into_bytes())
    }

    fn path(&self) -> String {
        format!("blobs/sha256/{}", self.digest)
    }

    fn descriptor(&self, media_type: &str) -> Value {
        json!({"mediaType": media_type, "digest": format!("sha256:{}", self.digest), "size": self.bytes.len()})
    }

    fn entry(self) -> Entry {
        Entry::file(self.path(), self.bytes)
    }
}
