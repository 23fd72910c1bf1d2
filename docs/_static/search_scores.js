// How Sphinx's search orders its results: its own scores, with the pages for users before those for developers.
const FOR_DEVELOPERS = /^(decisions\/|patches$|reference\/api$)/;

// `var`, because Sphinx's script declares the same name.
var Scorer = {
    score: ([page, , , , score]) => (FOR_DEVELOPERS.test(page) ? score - 100 : score),
    objNameMatch: 11,
    objPartialMatch: 6,
    objPrio: { 0: 15, 1: 5, 2: -5 },
    objPrioDefault: 0,
    title: 15,
    partialTitle: 7,
    term: 5,
    partialTerm: 2,
};
