//! Patches as tables, and compared with a simpler implementation.

use expect_test::{Expect, expect};
use proptest::prelude::*;
use quire_resource::ContainerDefinition;
use quire_sql::{Environment, SystemProperties};
use quire_value::{Item, Limits, Object, Value, text};

use super::Patch;
use crate::api::EngineError;

struct NoSystem;

impl SystemProperties for NoSystem {
    fn get(&self, name: &str) -> Option<Value> {
        (name == "_ts").then(|| 7.into())
    }
    fn write_members(&self, _: &mut Vec<u8>) {}
    fn set_members(&self, _: &mut Object) {}
}

fn json(text: &str) -> Value {
    text::parse(text.as_bytes(), Limits::default()).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn definition() -> ContainerDefinition {
    let body = r#"{"id":"c","partitionKey":{"paths":["/pk","/deep/key"],"kind":"MultiHash","version":2},
        "computedProperties":[{"name":"cp_lower","query":"SELECT VALUE LOWER(c.name) FROM c"}]}"#;
    ContainerDefinition::create(&json(body)).expect("a definition")
}

fn patched(item: &str, patch: &str) -> Result<Value, EngineError> {
    let item = Item::from_value(&json(item));
    let environment = Environment::default();
    Patch::parse(patch.as_bytes())?.apply(item.root(), &NoSystem, &definition(), environment)
}

fn outcome(result: Result<Value, EngineError>) -> String {
    match result {
        Ok(item) => item.to_json(),
        Err(EngineError::BadRequest { message }) => {
            format!("400 {}", message.replace(" Learn more: https://aka.ms/cosmosdbpatchdocs", ""))
        }
        Err(error) => format!("{error:?}"),
    }
}

/// One line per list of operations.
fn check(item: &str, patches: &[&str], expect: Expect) {
    let lines = patches.iter().map(|patch| format!("{patch}\n    {}\n", outcome(patched(item, patch))));
    expect.assert_eq(&lines.collect::<String>());
}

const ITEM: &str = r#"{"id":"1","pk":"p","name":"Ada","n":1,"none":null,"tags":["a","b"],"o":{"x":1,"list":[{"k":1}]},"a/b":1,"m~n":2}"#;

#[test]
fn add() {
    check(
        ITEM,
        &[
            r#"[{"op":"add","path":"/new","value":{"deep":[1]}}]"#,
            r#"[{"op":"add","path":"/name","value":null}]"#,
            r#"[{"op":"add","path":"/tags/0","value":"z"}]"#,
            r#"[{"op":"add","path":"/tags/2","value":"z"}]"#,
            r#"[{"op":"add","path":"/tags/-","value":"z"}]"#,
            r#"[{"op":"add","path":"/tags/3","value":"z"}]"#,
            r#"[{"op":"add","path":"/tags/01","value":"z"}]"#,
            r#"[{"op":"add","path":"/tags/x","value":"z"}]"#,
            r#"[{"op":"add","path":"/tags/99999999999999999999","value":"z"}]"#,
            r#"[{"op":"add","path":"/o/list/0/k2","value":2}]"#,
            r#"[{"op":"add","path":"/o/0","value":"a name"}]"#,
            r#"[{"op":"add","path":"/x/y","value":1}]"#,
            r#"[{"op":"add","path":"/o/y/z","value":1}]"#,
            r#"[{"op":"add","path":"/name/y","value":1}]"#,
            r#"[{"op":"add","path":"/tags/-/y","value":1}]"#,
            r#"[{"op":"add","path":"/a~1b","value":"slash"},{"op":"add","path":"/m~0n","value":"tilde"}]"#,
            r#"[{"op":"add","path":"/~01","value":"not a slash"}]"#,
        ],
        expect![[r#"
            [{"op":"add","path":"/new","value":{"deep":[1]}}]
                {"id":"1","pk":"p","name":"Ada","n":1,"none":null,"tags":["a","b"],"o":{"x":1,"list":[{"k":1}]},"a/b":1,"m~n":2,"new":{"deep":[1]}}
            [{"op":"add","path":"/name","value":null}]
                {"id":"1","pk":"p","name":null,"n":1,"none":null,"tags":["a","b"],"o":{"x":1,"list":[{"k":1}]},"a/b":1,"m~n":2}
            [{"op":"add","path":"/tags/0","value":"z"}]
                {"id":"1","pk":"p","name":"Ada","n":1,"none":null,"tags":["z","a","b"],"o":{"x":1,"list":[{"k":1}]},"a/b":1,"m~n":2}
            [{"op":"add","path":"/tags/2","value":"z"}]
                {"id":"1","pk":"p","name":"Ada","n":1,"none":null,"tags":["a","b","z"],"o":{"x":1,"list":[{"k":1}]},"a/b":1,"m~n":2}
            [{"op":"add","path":"/tags/-","value":"z"}]
                {"id":"1","pk":"p","name":"Ada","n":1,"none":null,"tags":["a","b","z"],"o":{"x":1,"list":[{"k":1}]},"a/b":1,"m~n":2}
            [{"op":"add","path":"/tags/3","value":"z"}]
                400 For Operation(1): The index 3 is beyond the end of an array of 2.
            [{"op":"add","path":"/tags/01","value":"z"}]
                400 For Operation(1): '01' is not an index of an array.
            [{"op":"add","path":"/tags/x","value":"z"}]
                400 For Operation(1): 'x' is not an index of an array.
            [{"op":"add","path":"/tags/99999999999999999999","value":"z"}]
                400 For Operation(1): '99999999999999999999' is not an index of an array.
            [{"op":"add","path":"/o/list/0/k2","value":2}]
                {"id":"1","pk":"p","name":"Ada","n":1,"none":null,"tags":["a","b"],"o":{"x":1,"list":[{"k":1,"k2":2}]},"a/b":1,"m~n":2}
            [{"op":"add","path":"/o/0","value":"a name"}]
                {"id":"1","pk":"p","name":"Ada","n":1,"none":null,"tags":["a","b"],"o":{"x":1,"list":[{"k":1}],"0":"a name"},"a/b":1,"m~n":2}
            [{"op":"add","path":"/x/y","value":1}]
                400 For Operation(1): Add Operation can only create a child object of an existing node(array or object) and cannot create path recursively, no path found beyond: 'x'.
            [{"op":"add","path":"/o/y/z","value":1}]
                400 For Operation(1): Add Operation can only create a child object of an existing node(array or object) and cannot create path recursively, no path found beyond: 'y'.
            [{"op":"add","path":"/name/y","value":1}]
                400 For Operation(1): Add Operation can only create a child object of an existing node(array or object) and cannot create path recursively, no path found beyond: 'name'.
            [{"op":"add","path":"/tags/-/y","value":1}]
                400 For Operation(1): Add Operation can only create a child object of an existing node(array or object) and cannot create path recursively, no path found beyond: '-'.
            [{"op":"add","path":"/a~1b","value":"slash"},{"op":"add","path":"/m~0n","value":"tilde"}]
                {"id":"1","pk":"p","name":"Ada","n":1,"none":null,"tags":["a","b"],"o":{"x":1,"list":[{"k":1}]},"a/b":"slash","m~n":"tilde"}
            [{"op":"add","path":"/~01","value":"not a slash"}]
                {"id":"1","pk":"p","name":"Ada","n":1,"none":null,"tags":["a","b"],"o":{"x":1,"list":[{"k":1}]},"a/b":1,"m~n":2,"~1":"not a slash"}
        "#]],
    );
}

#[test]
fn set_and_replace() {
    check(
        ITEM,
        &[
            r#"[{"op":"set","path":"/new","value":1}]"#,
            r#"[{"op":"set","path":"/n","value":"one"}]"#,
            r#"[{"op":"set","path":"/tags/0","value":"z"}]"#,
            r#"[{"op":"set","path":"/tags/2","value":"z"}]"#,
            r#"[{"op":"set","path":"/tags/-","value":"z"}]"#,
            r#"[{"op":"set","path":"/tags/3","value":"z"}]"#,
            r#"[{"op":"set","path":"/x/y","value":"z"}]"#,
            r#"[{"op":"replace","path":"/n","value":null}]"#,
            r#"[{"op":"replace","path":"/none","value":0}]"#,
            r#"[{"op":"replace","path":"/new","value":0}]"#,
            r#"[{"op":"replace","path":"/tags/1","value":"z"}]"#,
            r#"[{"op":"replace","path":"/tags/2","value":"z"}]"#,
            r#"[{"op":"replace","path":"/tags/-","value":"z"}]"#,
            r#"[{"op":"replace","path":"/x/y","value":"z"}]"#,
        ],
        expect![[r#"
            [{"op":"set","path":"/new","value":1}]
                {"id":"1","pk":"p","name":"Ada","n":1,"none":null,"tags":["a","b"],"o":{"x":1,"list":[{"k":1}]},"a/b":1,"m~n":2,"new":1}
            [{"op":"set","path":"/n","value":"one"}]
                {"id":"1","pk":"p","name":"Ada","n":"one","none":null,"tags":["a","b"],"o":{"x":1,"list":[{"k":1}]},"a/b":1,"m~n":2}
            [{"op":"set","path":"/tags/0","value":"z"}]
                {"id":"1","pk":"p","name":"Ada","n":1,"none":null,"tags":["z","b"],"o":{"x":1,"list":[{"k":1}]},"a/b":1,"m~n":2}
            [{"op":"set","path":"/tags/2","value":"z"}]
                {"id":"1","pk":"p","name":"Ada","n":1,"none":null,"tags":["a","b","z"],"o":{"x":1,"list":[{"k":1}]},"a/b":1,"m~n":2}
            [{"op":"set","path":"/tags/-","value":"z"}]
                {"id":"1","pk":"p","name":"Ada","n":1,"none":null,"tags":["a","b","z"],"o":{"x":1,"list":[{"k":1}]},"a/b":1,"m~n":2}
            [{"op":"set","path":"/tags/3","value":"z"}]
                400 For Operation(1): The index 3 is beyond the end of an array of 2.
            [{"op":"set","path":"/x/y","value":"z"}]
                400 For Operation(1): Set Operation can only create a child object of an existing node(array or object) and cannot create path recursively, no path found beyond: 'x'.
            [{"op":"replace","path":"/n","value":null}]
                {"id":"1","pk":"p","name":"Ada","n":null,"none":null,"tags":["a","b"],"o":{"x":1,"list":[{"k":1}]},"a/b":1,"m~n":2}
            [{"op":"replace","path":"/none","value":0}]
                {"id":"1","pk":"p","name":"Ada","n":1,"none":0,"tags":["a","b"],"o":{"x":1,"list":[{"k":1}]},"a/b":1,"m~n":2}
            [{"op":"replace","path":"/new","value":0}]
                400 For Operation(1): The Node to be replaced is absent.
            [{"op":"replace","path":"/tags/1","value":"z"}]
                {"id":"1","pk":"p","name":"Ada","n":1,"none":null,"tags":["a","z"],"o":{"x":1,"list":[{"k":1}]},"a/b":1,"m~n":2}
            [{"op":"replace","path":"/tags/2","value":"z"}]
                400 For Operation(1): The Node to be replaced is absent.
            [{"op":"replace","path":"/tags/-","value":"z"}]
                400 For Operation(1): The Node to be replaced is absent.
            [{"op":"replace","path":"/x/y","value":"z"}]
                400 For Operation(1): The Node to be replaced is absent.
        "#]],
    );
}

#[test]
fn remove_and_move() {
    check(
        ITEM,
        &[
            r#"[{"op":"remove","path":"/name"}]"#,
            r#"[{"op":"remove","path":"/none","value":null}]"#,
            r#"[{"op":"remove","path":"/tags/0"}]"#,
            r#"[{"op":"remove","path":"/tags/2"}]"#,
            r#"[{"op":"remove","path":"/tags/-"}]"#,
            r#"[{"op":"remove","path":"/new"}]"#,
            r#"[{"op":"remove","path":"/new/deep"}]"#,
            r#"[{"op":"move","from":"/n","path":"/m"}]"#,
            r#"[{"op":"move","from":"/n","path":"/name"}]"#,
            r#"[{"op":"move","from":"/n","path":"/n"}]"#,
            r#"[{"op":"move","from":"/n","path":"/tags/1"}]"#,
            r#"[{"op":"move","from":"/tags/0","path":"/tags/-"}]"#,
            r#"[{"op":"move","from":"/tags/0","path":"/tags/2"}]"#,
            r#"[{"op":"move","from":"/o/list","path":"/o"}]"#,
            r#"[{"op":"move","from":"/o","path":"/o/x"}]"#,
            r#"[{"op":"move","from":"/o","path":"/ox"}]"#,
            r#"[{"op":"move","from":"/new","path":"/n"}]"#,
            r#"[{"op":"move","from":"/tags/-","path":"/n"}]"#,
            r#"[{"op":"move","from":"/n","path":"/x/y"}]"#,
        ],
        expect![[r#"
            [{"op":"remove","path":"/name"}]
                {"id":"1","pk":"p","n":1,"none":null,"tags":["a","b"],"o":{"x":1,"list":[{"k":1}]},"a/b":1,"m~n":2}
            [{"op":"remove","path":"/none","value":null}]
                {"id":"1","pk":"p","name":"Ada","n":1,"tags":["a","b"],"o":{"x":1,"list":[{"k":1}]},"a/b":1,"m~n":2}
            [{"op":"remove","path":"/tags/0"}]
                {"id":"1","pk":"p","name":"Ada","n":1,"none":null,"tags":["b"],"o":{"x":1,"list":[{"k":1}]},"a/b":1,"m~n":2}
            [{"op":"remove","path":"/tags/2"}]
                400 For Operation(1): The Node to be removed is absent.
            [{"op":"remove","path":"/tags/-"}]
                400 For Operation(1): The Node to be removed is absent.
            [{"op":"remove","path":"/new"}]
                400 For Operation(1): The Node to be removed is absent.
            [{"op":"remove","path":"/new/deep"}]
                400 For Operation(1): The Node to be removed is absent.
            [{"op":"move","from":"/n","path":"/m"}]
                {"id":"1","pk":"p","name":"Ada","none":null,"tags":["a","b"],"o":{"x":1,"list":[{"k":1}]},"a/b":1,"m~n":2,"m":1}
            [{"op":"move","from":"/n","path":"/name"}]
                {"id":"1","pk":"p","name":1,"none":null,"tags":["a","b"],"o":{"x":1,"list":[{"k":1}]},"a/b":1,"m~n":2}
            [{"op":"move","from":"/n","path":"/n"}]
                {"id":"1","pk":"p","name":"Ada","none":null,"tags":["a","b"],"o":{"x":1,"list":[{"k":1}]},"a/b":1,"m~n":2,"n":1}
            [{"op":"move","from":"/n","path":"/tags/1"}]
                {"id":"1","pk":"p","name":"Ada","none":null,"tags":["a",1,"b"],"o":{"x":1,"list":[{"k":1}]},"a/b":1,"m~n":2}
            [{"op":"move","from":"/tags/0","path":"/tags/-"}]
                {"id":"1","pk":"p","name":"Ada","n":1,"none":null,"tags":["b","a"],"o":{"x":1,"list":[{"k":1}]},"a/b":1,"m~n":2}
            [{"op":"move","from":"/tags/0","path":"/tags/2"}]
                400 For Operation(1): The index 2 is beyond the end of an array of 1.
            [{"op":"move","from":"/o/list","path":"/o"}]
                {"id":"1","pk":"p","name":"Ada","n":1,"none":null,"tags":["a","b"],"o":[{"k":1}],"a/b":1,"m~n":2}
            [{"op":"move","from":"/o","path":"/o/x"}]
                400 For Operation(1): A node cannot be moved into itself.
            [{"op":"move","from":"/o","path":"/ox"}]
                {"id":"1","pk":"p","name":"Ada","n":1,"none":null,"tags":["a","b"],"a/b":1,"m~n":2,"ox":{"x":1,"list":[{"k":1}]}}
            [{"op":"move","from":"/new","path":"/n"}]
                400 For Operation(1): The Node to be moved is absent.
            [{"op":"move","from":"/tags/-","path":"/n"}]
                400 For Operation(1): The Node to be moved is absent.
            [{"op":"move","from":"/n","path":"/x/y"}]
                400 For Operation(1): Move Operation can only create a child object of an existing node(array or object) and cannot create path recursively, no path found beyond: 'x'.
        "#]],
    );
}

#[test]
fn increment() {
    let item = r#"{"id":"1","i":1,"d":1.5,"whole":2.0,"max":9223372036854775807,"most":18446744073709551615,"huge":1.7e308,"t":"1","z":null,"l":[1,"x"]}"#;
    check(
        item,
        &[
            r#"[{"op":"incr","path":"/i","value":2},{"op":"incr","path":"/i","value":-5}]"#,
            r#"[{"op":"incr","path":"/i","value":0.25}]"#,
            r#"[{"op":"incr","path":"/d","value":0.5}]"#,
            r#"[{"op":"incr","path":"/whole","value":1}]"#,
            r#"[{"op":"incr","path":"/max","value":1}]"#,
            r#"[{"op":"incr","path":"/max","value":-9223372036854775808}]"#,
            r#"[{"op":"incr","path":"/most","value":1}]"#,
            r#"[{"op":"incr","path":"/most","value":-1}]"#,
            r#"[{"op":"incr","path":"/huge","value":1.7e308}]"#,
            r#"[{"op":"incr","path":"/new","value":7}]"#,
            r#"[{"op":"incr","path":"/t","value":1}]"#,
            r#"[{"op":"incr","path":"/z","value":1}]"#,
            r#"[{"op":"incr","path":"/i","value":"1"}]"#,
            r#"[{"op":"incr","path":"/i","value":null}]"#,
            r#"[{"op":"incr","path":"/i"}]"#,
            r#"[{"op":"incr","path":"/l/0","value":1}]"#,
            r#"[{"op":"incr","path":"/l/1","value":1}]"#,
            r#"[{"op":"incr","path":"/l/2","value":1}]"#,
            r#"[{"op":"incr","path":"/l/-","value":1}]"#,
            r#"[{"op":"incr","path":"/x/y","value":1}]"#,
        ],
        expect![[r#"
            [{"op":"incr","path":"/i","value":2},{"op":"incr","path":"/i","value":-5}]
                {"id":"1","i":-2,"d":1.5,"whole":2,"max":9223372036854775807,"most":18446744073709551615,"huge":1.7e+308,"t":"1","z":null,"l":[1,"x"]}
            [{"op":"incr","path":"/i","value":0.25}]
                {"id":"1","i":1.25,"d":1.5,"whole":2,"max":9223372036854775807,"most":18446744073709551615,"huge":1.7e+308,"t":"1","z":null,"l":[1,"x"]}
            [{"op":"incr","path":"/d","value":0.5}]
                {"id":"1","i":1,"d":2,"whole":2,"max":9223372036854775807,"most":18446744073709551615,"huge":1.7e+308,"t":"1","z":null,"l":[1,"x"]}
            [{"op":"incr","path":"/whole","value":1}]
                {"id":"1","i":1,"d":1.5,"whole":3,"max":9223372036854775807,"most":18446744073709551615,"huge":1.7e+308,"t":"1","z":null,"l":[1,"x"]}
            [{"op":"incr","path":"/max","value":1}]
                {"id":"1","i":1,"d":1.5,"whole":2,"max":9223372036854775808,"most":18446744073709551615,"huge":1.7e+308,"t":"1","z":null,"l":[1,"x"]}
            [{"op":"incr","path":"/max","value":-9223372036854775808}]
                {"id":"1","i":1,"d":1.5,"whole":2,"max":-1,"most":18446744073709551615,"huge":1.7e+308,"t":"1","z":null,"l":[1,"x"]}
            [{"op":"incr","path":"/most","value":1}]
                {"id":"1","i":1,"d":1.5,"whole":2,"max":9223372036854775807,"most":1.8446744073709552e+19,"huge":1.7e+308,"t":"1","z":null,"l":[1,"x"]}
            [{"op":"incr","path":"/most","value":-1}]
                {"id":"1","i":1,"d":1.5,"whole":2,"max":9223372036854775807,"most":18446744073709551614,"huge":1.7e+308,"t":"1","z":null,"l":[1,"x"]}
            [{"op":"incr","path":"/huge","value":1.7e308}]
                400 For Operation(1): The incremented number is out of range.
            [{"op":"incr","path":"/new","value":7}]
                {"id":"1","i":1,"d":1.5,"whole":2,"max":9223372036854775807,"most":18446744073709551615,"huge":1.7e+308,"t":"1","z":null,"l":[1,"x"],"new":7}
            [{"op":"incr","path":"/t","value":1}]
                400 For Operation(1): Only a number can be incremented.
            [{"op":"incr","path":"/z","value":1}]
                400 For Operation(1): Only a number can be incremented.
            [{"op":"incr","path":"/i","value":"1"}]
                400 For Operation(1): The value of an increment must be a number.
            [{"op":"incr","path":"/i","value":null}]
                400 For Operation(1): The value of an increment must be a number.
            [{"op":"incr","path":"/i"}]
                400 For Operation(1): The operation has no 'value'.
            [{"op":"incr","path":"/l/0","value":1}]
                {"id":"1","i":1,"d":1.5,"whole":2,"max":9223372036854775807,"most":18446744073709551615,"huge":1.7e+308,"t":"1","z":null,"l":[2,"x"]}
            [{"op":"incr","path":"/l/1","value":1}]
                400 For Operation(1): Only a number can be incremented.
            [{"op":"incr","path":"/l/2","value":1}]
                400 For Operation(1): The Node to be incremented is absent.
            [{"op":"incr","path":"/l/-","value":1}]
                400 For Operation(1): The Node to be incremented is absent.
            [{"op":"incr","path":"/x/y","value":1}]
                400 For Operation(1): Increment Operation can only create a child object of an existing node(array or object) and cannot create path recursively, no path found beyond: 'x'.
        "#]],
    );
}

#[test]
fn paths_that_no_patch_may_change() {
    check(
        r#"{"id":"1","pk":"p","deep":{"key":"k","other":1},"pkx":1,"idx":1,"a":1}"#,
        &[
            r#"[{"op":"set","path":"/id","value":"2"}]"#,
            r#"[{"op":"set","path":"/pk","value":"2"}]"#,
            r#"[{"op":"set","path":"/deep/key","value":"2"}]"#,
            r#"[{"op":"set","path":"/deep","value":{}}]"#,
            r#"[{"op":"remove","path":"/deep"}]"#,
            r#"[{"op":"move","from":"/deep","path":"/x"}]"#,
            r#"[{"op":"move","from":"/a","path":"/pk"}]"#,
            r#"[{"op":"move","from":"/id","path":"/x"}]"#,
            r#"[{"op":"set","path":"/_ts","value":1}]"#,
            r#"[{"op":"remove","path":"/_etag"}]"#,
            r#"[{"op":"add","path":"/_rid/x","value":1}]"#,
            r#"[{"op":"add","path":"/_self","value":1}]"#,
            r#"[{"op":"add","path":"/_attachments","value":1}]"#,
            r#"[{"op":"add","path":"/cp_lower","value":1}]"#,
            r#"[{"op":"add","path":"","value":{}}]"#,
            r#"[{"op":"add","path":"/","value":{}}]"#,
            r#"[{"op":"move","from":"","path":"/x"}]"#,
            r#"[{"op":"set","path":"/deep/other","value":2},{"op":"set","path":"/pkx","value":2},{"op":"set","path":"/idx","value":2},{"op":"set","path":"/_mine","value":2}]"#,
        ],
        expect![[r#"
            [{"op":"set","path":"/id","value":"2"}]
                400 For Operation(1): The id of an item cannot be patched.
            [{"op":"set","path":"/pk","value":"2"}]
                400 For Operation(1): The partition key path '/pk' and what it lies in cannot be patched.
            [{"op":"set","path":"/deep/key","value":"2"}]
                400 For Operation(1): The partition key path '/deep/key' and what it lies in cannot be patched.
            [{"op":"set","path":"/deep","value":{}}]
                400 For Operation(1): The partition key path '/deep/key' and what it lies in cannot be patched.
            [{"op":"remove","path":"/deep"}]
                400 For Operation(1): The partition key path '/deep/key' and what it lies in cannot be patched.
            [{"op":"move","from":"/deep","path":"/x"}]
                400 For Operation(1): The partition key path '/deep/key' and what it lies in cannot be patched.
            [{"op":"move","from":"/a","path":"/pk"}]
                400 For Operation(1): The partition key path '/pk' and what it lies in cannot be patched.
            [{"op":"move","from":"/id","path":"/x"}]
                400 For Operation(1): The id of an item cannot be patched.
            [{"op":"set","path":"/_ts","value":1}]
                400 For Operation(1): The system property '_ts' cannot be patched.
            [{"op":"remove","path":"/_etag"}]
                400 For Operation(1): The system property '_etag' cannot be patched.
            [{"op":"add","path":"/_rid/x","value":1}]
                400 For Operation(1): The system property '_rid' cannot be patched.
            [{"op":"add","path":"/_self","value":1}]
                400 For Operation(1): The system property '_self' cannot be patched.
            [{"op":"add","path":"/_attachments","value":1}]
                400 For Operation(1): The system property '_attachments' cannot be patched.
            [{"op":"add","path":"/cp_lower","value":1}]
                400 For Operation(1): The computed property 'cp_lower' cannot be patched.
            [{"op":"add","path":"","value":{}}]
                400 For Operation(1): The root of an item cannot be patched.
            [{"op":"add","path":"/","value":{}}]
                400 For Operation(1): The root of an item cannot be patched.
            [{"op":"move","from":"","path":"/x"}]
                400 For Operation(1): The root of an item cannot be patched.
            [{"op":"set","path":"/deep/other","value":2},{"op":"set","path":"/pkx","value":2},{"op":"set","path":"/idx","value":2},{"op":"set","path":"/_mine","value":2}]
                {"id":"1","pk":"p","deep":{"key":"k","other":2},"pkx":2,"idx":2,"a":1,"_mine":2}
        "#]],
    );
}

#[test]
fn malformed() {
    let eleven = [r#"{"op":"incr","path":"/n","value":1}"#; 11].join(",");
    let ten = [r#"{"op":"incr","path":"/n","value":1}"#; 10].join(",");
    check(
        r#"{"id":"1","n":1}"#,
        &[
            "",
            "7",
            "{}",
            "[]",
            r#"{"operations":[]}"#,
            r#"{"operations":{}}"#,
            r#"{"operations":[{"op":"incr","path":"/n","value":1}],"condition":7}"#,
            r#"{"operations":[{"op":"incr","path":"/n","value":1}],"condition":null}"#,
            r#"{"operations":[{"op":"incr","path":"/n","value":1}],"conditions":"FROM c"}"#,
            &format!("[{ten}]"),
            &format!("[{eleven}]"),
            r#"[7]"#,
            r#"[{"path":"/n","value":1}]"#,
            r#"[{"op":7,"path":"/n","value":1}]"#,
            r#"[{"op":"Add","path":"/n","value":1}]"#,
            r#"[{"op":"test","path":"/n","value":1}]"#,
            r#"[{"op":"copy","from":"/n","path":"/m"}]"#,
            r#"[{"op":"set","value":1}]"#,
            r#"[{"op":"set","path":"/n"}]"#,
            r#"[{"op":"set","path":7,"value":1}]"#,
            r#"[{"op":"set","path":"n","value":1}]"#,
            r#"[{"op":"set","path":"/n/","value":1}]"#,
            r#"[{"op":"set","path":"/a~2b","value":1}]"#,
            r#"[{"op":"set","path":"/a~","value":1}]"#,
            r#"[{"op":"set","path":"/n","value":1,"if":"x"}]"#,
            r#"[{"op":"set","path":"/n","value":1,"from":"/m"}]"#,
            r#"[{"op":"remove","path":"/n","value":1}]"#,
            r#"[{"op":"move","path":"/m"}]"#,
            r#"[{"op":"move","from":"/n","path":"/m","value":1}]"#,
            r#"[{"op":"incr","path":"/n","value":1},{"op":"remove","path":"/x"}]"#,
        ],
        expect![[r#"

                BadJson(Malformed { offset: 0, reason: "the text ends where a value is expected" })
            7
                400 A patch is an array of operations, or an object that has them.
            {}
                400 A patch must have 'operations'.
            []
                400 The patch has no operations.
            {"operations":[]}
                400 The patch has no operations.
            {"operations":{}}
                400 The operations of a patch must be an array.
            {"operations":[{"op":"incr","path":"/n","value":1}],"condition":7}
                400 The condition of a patch must be a string.
            {"operations":[{"op":"incr","path":"/n","value":1}],"condition":null}
                {"id":"1","n":2}
            {"operations":[{"op":"incr","path":"/n","value":1}],"conditions":"FROM c"}
                400 A patch has no property 'conditions'.
            [{"op":"incr","path":"/n","value":1},{"op":"incr","path":"/n","value":1},{"op":"incr","path":"/n","value":1},{"op":"incr","path":"/n","value":1},{"op":"incr","path":"/n","value":1},{"op":"incr","path":"/n","value":1},{"op":"incr","path":"/n","value":1},{"op":"incr","path":"/n","value":1},{"op":"incr","path":"/n","value":1},{"op":"incr","path":"/n","value":1}]
                {"id":"1","n":11}
            [{"op":"incr","path":"/n","value":1},{"op":"incr","path":"/n","value":1},{"op":"incr","path":"/n","value":1},{"op":"incr","path":"/n","value":1},{"op":"incr","path":"/n","value":1},{"op":"incr","path":"/n","value":1},{"op":"incr","path":"/n","value":1},{"op":"incr","path":"/n","value":1},{"op":"incr","path":"/n","value":1},{"op":"incr","path":"/n","value":1},{"op":"incr","path":"/n","value":1}]
                400 The number of patch operations can't exceed '10': this patch has 11.
            [7]
                400 For Operation(1): An operation must be an object.
            [{"path":"/n","value":1}]
                400 For Operation(1): The operation has no 'op'.
            [{"op":7,"path":"/n","value":1}]
                400 For Operation(1): The 'op' of an operation must be a string.
            [{"op":"Add","path":"/n","value":1}]
                400 For Operation(1): The operation 'Add' is not supported.
            [{"op":"test","path":"/n","value":1}]
                400 For Operation(1): The operation 'test' is not supported.
            [{"op":"copy","from":"/n","path":"/m"}]
                400 For Operation(1): The operation 'copy' is not supported.
            [{"op":"set","value":1}]
                400 For Operation(1): The operation has no 'path'.
            [{"op":"set","path":"/n"}]
                400 For Operation(1): The operation has no 'value'.
            [{"op":"set","path":7,"value":1}]
                400 For Operation(1): The 'path' of an operation must be a string.
            [{"op":"set","path":"n","value":1}]
                400 For Operation(1): The path 'n' must begin with '/'.
            [{"op":"set","path":"/n/","value":1}]
                400 For Operation(1): The path '/n/' has an empty name.
            [{"op":"set","path":"/a~2b","value":1}]
                400 For Operation(1): The path '/a~2b' has a '~' that is neither '~0' nor '~1'.
            [{"op":"set","path":"/a~","value":1}]
                400 For Operation(1): The path '/a~' has a '~' that is neither '~0' nor '~1'.
            [{"op":"set","path":"/n","value":1,"if":"x"}]
                400 For Operation(1): An operation has no property 'if'.
            [{"op":"set","path":"/n","value":1,"from":"/m"}]
                400 For Operation(1): The operation 'set' takes no 'from'.
            [{"op":"remove","path":"/n","value":1}]
                400 For Operation(1): The operation 'remove' takes no 'value'.
            [{"op":"move","path":"/m"}]
                400 For Operation(1): The operation has no 'from'.
            [{"op":"move","from":"/n","path":"/m","value":1}]
                400 For Operation(1): The operation 'move' takes no 'value'.
            [{"op":"incr","path":"/n","value":1},{"op":"remove","path":"/x"}]
                400 For Operation(2): The Node to be removed is absent.
        "#]],
    );
}

#[test]
fn conditions() {
    let mut out = String::new();
    for condition in [
        "FROM c WHERE c.n = 1",
        "from root where root.n = 1",
        "FROM c",
        "FROM c JOIN t IN c.tags WHERE t = 'b'",
        "FROM c WHERE c._ts = 7",
        "FROM c WHERE c.cp_lower = 'ada'",
        "FROM c WHERE c.n = 2",
        "FROM c WHERE c.missing",
        "FROM c WHERE c.missing = 1",
        "FROM c WHERE c.name",
        "FROM c JOIN t IN c.tags WHERE t = 'z'",
        "WHERE c.n = 1",
        "c.n = 1",
        "+ 5 FROM c",
        "FROMc",
        "",
        "FROM c WHERE c.n =",
        "FROM c WHERE c.n = @n",
        "FROM c WHERE NOSUCH(c.n)",
        "FROM c WHERE udf.f(c.n)",
        "FROM c WHERE 1 / 0 = 1",
        "FROM c ORDER BY c.n",
        "FROM c GROUP BY c.n",
        "FROM c WHERE true OFFSET 1 LIMIT 1",
    ] {
        let mut patch =
            b"{\"operations\":[{\"op\":\"set\",\"path\":\"/n\",\"value\":5}],\"condition\":".to_vec();
        text::write_string(condition, &mut patch);
        patch.push(b'}');
        let item = r#"{"id":"1","n":1,"name":"Ada","tags":["a","b"]}"#;
        let result = patched(item, std::str::from_utf8(&patch).expect("text"));
        out.push_str(&format!("{condition}\n    {}\n", outcome(result)));
    }
    expect![[r#"
        FROM c WHERE c.n = 1
            {"id":"1","n":5,"name":"Ada","tags":["a","b"]}
        from root where root.n = 1
            {"id":"1","n":5,"name":"Ada","tags":["a","b"]}
        FROM c
            {"id":"1","n":5,"name":"Ada","tags":["a","b"]}
        FROM c JOIN t IN c.tags WHERE t = 'b'
            {"id":"1","n":5,"name":"Ada","tags":["a","b"]}
        FROM c WHERE c._ts = 7
            {"id":"1","n":5,"name":"Ada","tags":["a","b"]}
        FROM c WHERE c.cp_lower = 'ada'
            {"id":"1","n":5,"name":"Ada","tags":["a","b"]}
        FROM c WHERE c.n = 2
            PatchConditionNotMet
        FROM c WHERE c.missing
            PatchConditionNotMet
        FROM c WHERE c.missing = 1
            PatchConditionNotMet
        FROM c WHERE c.name
            PatchConditionNotMet
        FROM c JOIN t IN c.tags WHERE t = 'z'
            PatchConditionNotMet
        WHERE c.n = 1
            400 The condition of a patch must be of the form 'FROM c WHERE <predicate>'.
        c.n = 1
            400 The condition of a patch must be of the form 'FROM c WHERE <predicate>'.
        + 5 FROM c
            400 The condition of a patch must be of the form 'FROM c WHERE <predicate>'.
        FROMc
            400 The condition of a patch must be of the form 'FROM c WHERE <predicate>'.

            400 The condition of a patch must be of the form 'FROM c WHERE <predicate>'.
        FROM c WHERE c.n =
            Sql(Compile([Diagnostic { code: "SC1002", start: 18, end: 18, message: "Syntax error, unexpected end-of-file." }]))
        FROM c WHERE c.n = @n
            PatchConditionNotMet
        FROM c WHERE NOSUCH(c.n)
            Sql(Compile([Diagnostic { code: "SC2005", start: 13, end: 19, message: "'NOSUCH' is not a recognized built-in function name." }]))
        FROM c WHERE udf.f(c.n)
            NotSupported { feature: "A user-defined function in the condition of a patch" }
        FROM c WHERE 1 / 0 = 1
            PatchConditionNotMet
        FROM c ORDER BY c.n
            400 The condition of a patch must be of the form 'FROM c WHERE <predicate>'.
        FROM c GROUP BY c.n
            400 The condition of a patch must be of the form 'FROM c WHERE <predicate>'.
        FROM c WHERE true OFFSET 1 LIMIT 1
            400 The condition of a patch must be of the form 'FROM c WHERE <predicate>'.
    "#]].assert_eq(&out);
}

#[test]
fn a_failed_condition_comes_before_bad_operations() {
    let patch = r#"{"operations":[{"op":"nonsense"}],"condition":"FROM c WHERE false"}"#;
    assert!(matches!(patched(r#"{"id":"1"}"#, patch), Err(EngineError::PatchConditionNotMet)));
}

#[test]
fn depth_is_limited_also_by_small_steps() {
    let nested = format!("{}{}", "[".repeat(100), "]".repeat(100));
    let step = |path: &str| format!(r#"[{{"op":"add","path":"{path}","value":{nested}}}]"#);
    let item = patched(r#"{"id":"1"}"#, &step("/a")).expect("101 levels").to_json();
    assert!(patched(&item, &step(&format!("/a{}", "/0".repeat(28)))).is_err(), "29 and 100 levels");
    let deep = |levels: usize| format!("/a{}/-", "/0".repeat(levels));
    let one = |path: &str| format!(r#"[{{"op":"add","path":"{path}","value":[]}}]"#);
    let mut item = item;
    for level in 99..126 {
        item =
            patched(&item, &one(&deep(level))).unwrap_or_else(|error| panic!("{level}: {error}")).to_json();
    }
    assert_eq!(
        outcome(patched(&item, &one(&deep(126)))),
        "400 For Operation(1): The item would have more than 128 levels."
    );
    let scalar = format!(r#"[{{"op":"add","path":"{}","value":1}}]"#, deep(126));
    patched(&item, &scalar).expect("a scalar is no level");
}

/// The same by rebuilding everything on the way. It knows no messages.
mod naive {
    use quire_value::{Object, Value};

    type Edit<'e> = &'e dyn Fn(Parent, &str) -> Option<Parent>;

    pub enum Parent {
        Object(Vec<(String, Value)>),
        Array(Vec<Value>),
    }

    fn open(value: Value) -> Option<Parent> {
        match value {
            Value::Object(object) => Some(Parent::Object(object.into_iter().collect())),
            Value::Array(elements) => Some(Parent::Array(elements)),
            _ => None,
        }
    }

    fn close(parent: Parent) -> Value {
        match parent {
            Parent::Object(members) => Value::Object(members.into_iter().collect::<Object>()),
            Parent::Array(elements) => Value::Array(elements),
        }
    }

    fn at(value: Value, tokens: &[String], edit: Edit<'_>) -> Option<Value> {
        let mut parent = open(value)?;
        if let [last] = tokens {
            return edit(parent, last).map(close);
        }
        match &mut parent {
            Parent::Object(members) => {
                let (_, child) = members.iter_mut().find(|(name, _)| *name == tokens[0])?;
                *child = at(std::mem::take(child), &tokens[1..], edit)?;
            }
            Parent::Array(elements) => {
                let child = elements.get_mut(tokens[0].parse::<usize>().ok()?)?;
                *child = at(std::mem::take(child), &tokens[1..], edit)?;
            }
        }
        Some(close(parent))
    }

    pub fn get(value: &Value, tokens: &[String]) -> Option<Value> {
        tokens.iter().try_fold(value.clone(), |node, token| match open(node)? {
            Parent::Object(members) => {
                members.into_iter().find(|(name, _)| name == token).map(|(_, value)| value)
            }
            Parent::Array(elements) => elements.get(token.parse::<usize>().ok()?).cloned(),
        })
    }

    pub fn put(value: Value, tokens: &[String], new: &Value, inserts: bool) -> Option<Value> {
        at(value, tokens, &|parent, last| match parent {
            Parent::Object(mut members) => {
                match members.iter().position(|(name, _)| name == last) {
                    Some(at) => members[at].1 = new.clone(),
                    None => members.push((last.to_owned(), new.clone())),
                }
                Some(Parent::Object(members))
            }
            Parent::Array(elements) => {
                let index = if last == "-" { elements.len() } else { last.parse().ok()? };
                let (before, after) = elements.split_at_checked(index)?;
                let after = if inserts { after } else { after.get(1..).unwrap_or_default() };
                Some(Parent::Array([before, std::slice::from_ref(new), after].concat()))
            }
        })
    }

    pub fn remove(value: Value, tokens: &[String]) -> Option<Value> {
        get(&value, tokens)?;
        at(value, tokens, &|parent, last| match parent {
            Parent::Object(members) => {
                Some(Parent::Object(members.into_iter().filter(|(name, _)| name != last).collect()))
            }
            Parent::Array(mut elements) => {
                elements.remove(last.parse().ok()?);
                Some(Parent::Array(elements))
            }
        })
    }
}

#[derive(Clone, Debug)]
struct RandomStep {
    op: &'static str,
    path: Vec<String>,
    from: Vec<String>,
    value: Value,
}

fn naive(item: Value, step: &RandomStep) -> Option<Value> {
    match step.op {
        "add" => naive::put(item, &step.path, &step.value, true),
        "set" => naive::put(item, &step.path, &step.value, false),
        "replace" => {
            naive::get(&item, &step.path)?;
            naive::put(item, &step.path, &step.value, false)
        }
        "remove" => naive::remove(item, &step.path),
        "incr" => {
            let by = step.value.as_i64()?;
            match naive::get(&item, &step.path) {
                Some(old) => naive::put(item, &step.path, &(old.as_i64()? + by).into(), false),
                // Elements are not created.
                None => match naive::get(&item, &step.path[..step.path.len() - 1])? {
                    Value::Array(_) => None,
                    _ => naive::put(item, &step.path, &step.value, false),
                },
            }
        }
        "move" => {
            if step.path.len() > step.from.len() && step.path.starts_with(&step.from) {
                return None;
            }
            let moved = naive::get(&item, &step.from)?;
            naive::put(naive::remove(item, &step.from)?, &step.path, &moved, true)
        }
        other => panic!("{other}"),
    }
}

fn pointer(tokens: &[String]) -> String {
    tokens.iter().map(|token| format!("/{}", token.replace('~', "~0").replace('/', "~1"))).collect()
}

impl RandomStep {
    fn json(&self) -> Value {
        let mut object = Object::new();
        object.set("op", self.op);
        object.set("path", pointer(&self.path));
        match self.op {
            "move" => object.set("from", pointer(&self.from)),
            "remove" => {}
            _ => object.set("value", self.value.clone()),
        }
        Value::Object(object)
    }
}

fn token() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "b", "c/~d", "~1", "0", "1", "2", "-"]).prop_map(str::to_owned)
}

fn value() -> impl Strategy<Value = Value> {
    let scalar =
        prop_oneof![Just(Value::Null), any::<bool>().prop_map(Value::from), (-3..9i64).prop_map(Value::from)];
    scalar.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::vec((token(), inner), 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn step() -> impl Strategy<Value = RandomStep> {
    let path = || prop::collection::vec(token(), 1..4);
    let op = prop::sample::select(vec!["add", "set", "replace", "remove", "incr", "move"]);
    (op, path(), path(), value()).prop_map(|(op, path, from, value)| RandomStep { op, path, from, value })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// Value, property order and whether it is refused, and by which operation.
    #[test]
    fn agrees_with_a_dumber_implementation(
        members in prop::collection::vec((token(), value()), 0..4),
        steps in prop::collection::vec(step(), 1..5),
    ) {
        let mut item: Object = [("id", Value::from("1"))].into_iter().collect();
        item.extend(members);
        let item = Value::Object(item);
        let patch = Value::Array(steps.iter().map(RandomStep::json).collect()).to_json();
        let mut expected = Ok(item.clone());
        for (index, step) in steps.iter().enumerate() {
            expected = expected.and_then(|item| naive(item, step).ok_or(index + 1));
        }
        match (patched(&item.to_json(), &patch), expected) {
            (Ok(new), Ok(expected)) => prop_assert_eq!(new.to_json(), expected.to_json()),
            (Err(EngineError::BadRequest { message }), Err(number)) => {
                let start = format!("For Operation({number}): ");
                prop_assert!(message.starts_with(&start), "{} instead of operation {}", message, number);
            }
            (result, expected) => prop_assert!(false, "{} instead of {:?}", outcome(result), expected),
        }
    }

    #[test]
    fn no_text_makes_it_panic(text in "[\\[\\]{}\",:a-z0-9~/ -]{0,60}", path in "[/~a0-9-]{0,12}") {
        Patch::parse(text.as_bytes()).ok();
        let mut patch = b"[{\"op\":\"add\",\"value\":1,\"path\":".to_vec();
        text::write_string(&path, &mut patch);
        patch.extend_from_slice(b"}]");
        patched(ITEM, std::str::from_utf8(&patch).expect("text")).ok();
    }
}
