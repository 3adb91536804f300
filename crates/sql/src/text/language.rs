//! Languages of texts, by the codes of full-text policies.

use snowball_stemmers_rs::Algorithm;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Language {
    #[default]
    English,
    German,
    Spanish,
    French,
    Italian,
    Portuguese,
}

impl Language {
    /// By the code of a full-text policy. Case-sensitive.
    pub fn of_code(code: &str) -> Option<Language> {
        match code {
            "en-US" => Some(Language::English),
            "de-DE" => Some(Language::German),
            "es-ES" => Some(Language::Spanish),
            "fr-FR" => Some(Language::French),
            "it-IT" => Some(Language::Italian),
            "pt-BR" | "pt-PT" => Some(Language::Portuguese),
            _ => None,
        }
    }

    pub fn code(self) -> &'static str {
        match self {
            Language::English => "en-US",
            Language::German => "de-DE",
            Language::Spanish => "es-ES",
            Language::French => "fr-FR",
            Language::Italian => "it-IT",
            Language::Portuguese => "pt-PT",
        }
    }

    pub(super) fn algorithm(self) -> Algorithm {
        match self {
            Language::English => Algorithm::English,
            Language::German => Algorithm::German,
            Language::Spanish => Algorithm::Spanish,
            Language::French => Algorithm::French,
            Language::Italian => Algorithm::Italian,
            Language::Portuguese => Algorithm::Portuguese,
        }
    }
}
