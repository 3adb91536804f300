//! Expressions of copies, mirrors and rollups: SQL under the rules of computed properties, and no system properties.

use quire_resource::ContainerDefinition;
use quire_sql::{Expression, ExpressionError, ReadStep};

use super::{Checker, SYSTEM_NAMES};
use crate::declare::{Rollup, RollupOf};
use crate::pointer::escape;
use crate::problem::Problem;

/// Names of the target, of the referrer, and of what holds the reference.
pub(crate) const TARGET: &[&str] = &["t"];
pub(crate) const REFERRER: &[&str] = &["r"];
pub(crate) const REFERENCE: &[&str] = &["r", "e"];

/// The names that expressions of a rollup may use.
pub(crate) fn names_of(rollup: &Rollup) -> &'static [&'static str] {
    match rollup.of {
        RollupOf::Items => REFERRER,
        RollupOf::References => REFERENCE,
    }
}

/// One expression of the model.
pub(super) struct ModelExpression<'a> {
    pub at: String,
    /// ContainerPath and name of the declaration around it.
    pub declaration_at: String,
    pub declaration: &'a str,
    pub link: &'a str,
    pub text: &'a str,
    pub names: &'static [&'static str],
}

impl<'a> Checker<'a> {
    pub(super) fn check_expressions(&mut self) {
        for model_expression in self.expressions() {
            if !self.was_read(&model_expression.at) {
                continue;
            }
            match Expression::compile(model_expression.text, model_expression.names) {
                Ok(expression) => self.check_reads(&model_expression, &expression),
                Err(ExpressionError::Invalid(first)) => {
                    let (position, _) = first.wire_span(model_expression.text);
                    let (code, message) = (first.code, first.message);
                    self.report(&model_expression.at, Problem::BadExpression { code, position, message });
                }
                Err(ExpressionError::NotAllowed { what }) => {
                    self.report(&model_expression.at, Problem::ExpressionNotAllowed { what });
                }
            }
        }
    }

    /// Every expression, in the order of the body.
    pub(super) fn expressions(&self) -> Vec<ModelExpression<'a>> {
        let model = self.model;
        let mut model_expression = Vec::new();
        for (index, copy) in model.copies.iter().enumerate() {
            let declaration_at = format!("/copies/{index}");
            model_expression.extend(copy.fields.iter().map(|field| ModelExpression {
                at: format!("{declaration_at}/fields/{}", escape(&field.name)),
                declaration_at: declaration_at.clone(),
                declaration: &copy.name,
                link: &copy.link,
                text: &field.expression,
                names: TARGET,
            }));
        }
        for (index, mirror) in model.mirrors.iter().enumerate() {
            let (declaration, link, text) = (&*mirror.name, &*mirror.link, &*mirror.value);
            let declaration_at = format!("/mirrors/{index}");
            let at = format!("{declaration_at}/value");
            model_expression.push(ModelExpression {
                at,
                declaration_at,
                declaration,
                link,
                text,
                names: REFERRER,
            });
        }
        for (index, rollup) in model.rollups.iter().enumerate() {
            let given = [("value", rollup.value.as_ref()), ("filter", rollup.filter.as_ref())];
            model_expression.extend(given.into_iter().filter_map(|(member, text)| {
                let declaration_at = format!("/rollups/{index}");
                let at = format!("{declaration_at}/{member}");
                let (declaration, link) = (&*rollup.name, &*rollup.link);
                Some(ModelExpression {
                    at,
                    declaration_at,
                    declaration,
                    link,
                    text: text?,
                    names: names_of(rollup),
                })
            }));
        }
        model_expression
    }

    /// The item is read as clients wrote it: without system and computed properties.
    fn check_reads(&mut self, model_expression: &ModelExpression<'a>, expression: &Expression) {
        let Some(what) = self.unreadable(model_expression, expression) else { return };
        self.report(&model_expression.at, Problem::ExpressionNotAllowed { what });
    }

    fn unreadable(&self, model_expression: &ModelExpression<'a>, expression: &Expression) -> Option<String> {
        let container =
            self.link(&model_expression.declaration_at, model_expression.link).and_then(|(_, link)| {
                let name =
                    if model_expression.names == TARGET { &link.to.container } else { &link.from.container };
                self.database.containers.get(name.as_str()).copied()
            });
        expression.reads(0).iter().find_map(|place| match place.first() {
            Some(ReadStep::Name(name)) if SYSTEM_NAMES.contains(&name.as_str()) => {
                Some(format!("The system property '{name}'"))
            }
            Some(ReadStep::Name(name)) if is_computed(container, name) => {
                Some(format!("The computed property '{name}'"))
            }
            _ => None,
        })
    }
}

fn is_computed(container: Option<&ContainerDefinition>, name: &str) -> bool {
    container.is_some_and(|container| container.computed_properties.iter().any(|(own, _)| own == name))
}
