//! The row of a database's model.
//!
//! Sealed as every row of the catalog: ts (8), etag text, revision (8), the model as `quire-model` stores it as text, and for
//! each declaration, links, copies, mirrors, rollups, windows, each list behind its count (4): number (4), state (1) and what
//! it has: 0 and 1 are the phases of building, with the job (8); 2 is active; 3 failed, with an error text and its examples
//! as JSON text. Behind them, where refactorings are open, their conversions as JSON text.

use quire_model::Model;
use quire_value::{Limits, Value, text};

use crate::api::{EngineError, corrupt};
use crate::jobs::JobId;
use crate::model::{BuildPhase, Conversion, Declaration, DeclarationState, Declarations};
use crate::store::sealed::{FieldReader, length, open, seal, write_text};

const EXAMPLE_LIMITS: Limits = Limits { depth_max: 256 };

#[derive(Clone, Debug)]
pub(crate) struct ModelRow {
    pub ts: i64,
    pub etag: String,
    pub revision: u64,
    pub model: Model,
    pub declarations: Declarations,
    pub conversions: Vec<Conversion>,
}

impl ModelRow {
    pub fn encode(&self, key: &[u8]) -> Vec<u8> {
        let mut rest = Vec::new();
        rest.extend(self.ts.to_le_bytes());
        write_text(self.etag.as_bytes(), &mut rest);
        rest.extend(self.revision.to_le_bytes());
        write_text(&self.model.to_bytes(), &mut rest);
        let Declarations { links, copies, mirrors, rollups, windows } = &self.declarations;
        for list in [links, copies, mirrors, rollups, windows] {
            rest.extend(length(list.len()));
            list.iter().for_each(|declaration| write_declaration(declaration, &mut rest));
        }
        if !self.conversions.is_empty() {
            let conversions = self.conversions.iter().map(Conversion::to_json).collect::<Value>();
            write_text(conversions.to_json().as_bytes(), &mut rest);
        }
        seal(key, &rest)
    }

    pub fn decode(key: &[u8], bytes: &[u8]) -> Result<ModelRow, EngineError> {
        let mut reader = open(key, bytes)?;
        let (ts, etag, revision) = (reader.i64()?, reader.string()?, reader.u64()?);
        let model = Model::from_bytes(reader.bytes()?);
        let model = model.map_err(|error| EngineError::Corrupt { what: error.to_string() })?;
        let mut states: Vec<(u32, DeclarationState)> = Vec::new();
        let lists = [
            model.links.len(),
            model.copies.len(),
            model.mirrors.len(),
            model.rollups.len(),
            model.windows.len(),
        ];
        for count in lists {
            if reader.u32()? as usize != count {
                return Err(corrupt("declarations of a model"));
            }
            for _ in 0..count {
                states.push(read_declaration(&mut reader)?);
            }
        }
        let conversions = if reader.is_at_end() { Vec::new() } else { read_conversions(&mut reader)? };
        reader.end()?;
        let mut states = states.into_iter();
        let declarations = Declarations::try_new(&model, |_, name| {
            let (number, state) = states.next().ok_or_else(|| corrupt("declarations of a model"))?;
            Ok::<_, EngineError>(Declaration { name: name.to_owned(), number, state })
        })?;
        Ok(ModelRow { ts, etag, revision, model, declarations, conversions })
    }
}

fn write_declaration(declaration: &Declaration, out: &mut Vec<u8>) {
    out.extend(declaration.number.to_le_bytes());
    match &declaration.state {
        DeclarationState::Building { job, phase } => {
            out.push(match phase {
                BuildPhase::Index => 0,
                BuildPhase::Values => 1,
            });
            out.extend(job.0.to_le_bytes());
        }
        DeclarationState::Active => out.push(2),
        DeclarationState::Failed { error, examples } => {
            out.push(3);
            write_text(error.as_bytes(), out);
            write_text(Value::Array(examples.clone()).to_json().as_bytes(), out);
        }
    }
}

fn read_declaration(reader: &mut FieldReader<'_>) -> Result<(u32, DeclarationState), EngineError> {
    let number = reader.u32()?;
    let [tag] = reader.array()?;
    let state = match tag {
        0 => DeclarationState::Building { job: JobId(reader.u64()?), phase: BuildPhase::Index },
        1 => DeclarationState::Building { job: JobId(reader.u64()?), phase: BuildPhase::Values },
        2 => DeclarationState::Active,
        3 => DeclarationState::Failed { error: reader.string()?, examples: read_examples(reader)? },
        _ => return Err(corrupt("state of a declaration")),
    };
    Ok((number, state))
}

fn read_conversions(reader: &mut FieldReader<'_>) -> Result<Vec<Conversion>, EngineError> {
    let json = text::parse(reader.bytes()?, EXAMPLE_LIMITS).map_err(|_| corrupt("conversions of a model"))?;
    let conversions = json.as_array().unwrap_or_default().iter().map(Conversion::from_json);
    conversions.collect::<Option<_>>().ok_or_else(|| corrupt("conversions of a model"))
}

fn read_examples(reader: &mut FieldReader<'_>) -> Result<Vec<Value>, EngineError> {
    let examples = text::parse(reader.bytes()?, EXAMPLE_LIMITS).ok().and_then(Value::into_array);
    examples.ok_or_else(|| corrupt("examples of a declaration"))
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use quire_value::Object;

    use super::*;
    use crate::catalog::keys;

    fn row() -> ModelRow {
        let json = r#"{"version":1,"links":[{"name":"l","from":{"container":"a","path":"/b"},"to":{"container":"b"}}],
            "mirrors":[{"name":"m","link":"l","into":"/m"},{"name":"n","link":"l","into":"/n"}],
            "rollups":[{"name":"r","link":"l","op":"count","into":"/r"}]}"#;
        let json = text::parse(json.as_bytes(), EXAMPLE_LIMITS).unwrap();
        let model = Model::from_bytes(&[&[1], json.to_json().as_bytes()].concat()).unwrap();
        let mut number = 6;
        let declarations = Declarations::try_new(&model, |_, name| {
            number += 1;
            let job = JobId(17);
            let state = match name {
                "l" => DeclarationState::Active,
                "m" => DeclarationState::Building { job, phase: BuildPhase::Index },
                "n" => DeclarationState::Building { job, phase: BuildPhase::Values },
                _ => {
                    let example = Value::Object(Object::from_iter([("id", "x")]));
                    DeclarationState::Failed { error: "no".to_owned(), examples: vec![example] }
                }
            };
            Ok::<_, EngineError>(Declaration { name: name.to_owned(), number, state })
        });
        let (ts, etag, revision) = (1_700_000_000, "\"e\"".to_owned(), 3);
        ModelRow { ts, etag, revision, model, declarations: declarations.unwrap(), conversions: Vec::new() }
    }

    /// On disk: a change here is a new format.
    #[test]
    fn golden_bytes() {
        let key = keys::model_key(7);
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        expect!["3000000007"].assert_eq(&hex(&key));
        expect!["016ef7380000f1536500000000030000002265220300000000000000f2000000017b2276657273696f6e223a312c226c696e6b73223a5b7b226e616d65223a226c222c2266726f6d223a7b22636f6e7461696e6572223a2261222c2270617468223a222f62227d2c22746f223a7b22636f6e7461696e6572223a2262227d7d5d2c226d6972726f7273223a5b7b226e616d65223a226d222c226c696e6b223a226c222c22696e746f223a222f6d227d2c7b226e616d65223a226e222c226c696e6b223a226c222c22696e746f223a222f6e227d5d2c22726f6c6c757073223a5b7b226e616d65223a2272222c226c696e6b223a226c222c226f70223a22636f756e74222c22696e746f223a222f72227d5d7d01000000070000000200000000020000000800000000110000000000000009000000011100000000000000010000000a00000003020000006e6f0c0000005b7b226964223a2278227d5d00000000"].assert_eq(&hex(&row().encode(&key)));
    }

    #[test]
    fn what_was_written_is_read() {
        let key = keys::model_key(7);
        assert_eq!(keys::parse_model_key(&key), Some(7));
        let (row, bytes) = (row(), row().encode(&key));
        let read = ModelRow::decode(&key, &bytes).unwrap();
        assert_eq!((read.ts, &read.etag, read.revision), (row.ts, &row.etag, row.revision));
        assert_eq!((read.model, read.declarations), (row.model, row.declarations));
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 1;
            assert!(ModelRow::decode(&key, &bad).is_err(), "byte {at}");
            assert!(ModelRow::decode(&key, &bytes[..at]).is_err(), "cut at {at}");
        }
    }
}
