// Tests alerting rules: reads rules and cases, and says which cases did not
// fire as they should. It evaluates with Prometheus's own engine.
package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
	"go.yaml.in/yaml/v3"
)

// A step between samples and between evaluations.
const step = time.Minute

// testCase says of one alert: with these series, it fires at that time with
// these labels, or does not (no labels).
type testCase struct {
	Alert  string              `yaml:"alert"`
	Series map[string]string   `yaml:"series"` // values by metric, in the notation of promtool
	At     time.Duration       `yaml:"at"`
	Fires  []map[string]string `yaml:"fires"`
	Value  *float64            `yaml:"value"` // of the expression, if it fires once
}

func main() {
	if len(os.Args) < 3 {
		fail("alerts RULES CASES...")
	}
	rules, errs := rulefmt.ParseFile(os.Args[1], false, model.UTF8Validation)
	if len(errs) > 0 {
		fail("%s: %v", os.Args[1], errs)
	}
	var cases []testCase
	for _, path := range os.Args[2:] {
		cases = append(cases, readCases(path)...)
	}
	alerts := map[string]rulefmt.Rule{}
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			alerts[rule.Alert] = rule
		}
	}
	fired, quiet := map[string]bool{}, map[string]bool{}
	failures := 0
	complain := func(format string, args ...any) {
		failures++
		fmt.Printf(format+"\n", args...)
	}
	for _, test := range cases {
		rule, known := alerts[test.Alert]
		if !known {
			complain("%s: no such alert", test.Alert)
			continue
		}
		if len(test.Fires) > 0 {
			fired[test.Alert] = true
		} else {
			quiet[test.Alert] = true
		}
		found, value, err := firing(rule, test)
		if err != nil {
			complain("%s: %v", test.Alert, err)
		} else if wanted := texts(test.Fires); found != wanted {
			complain("%s at %s:\n  wanted %s\n  found  %s", test.Alert, test.At, wanted, found)
		} else if test.Value != nil && value != *test.Value {
			complain("%s at %s: wanted value %v, found %v", test.Alert, test.At, *test.Value, value)
		}
	}
	for name := range alerts {
		if !fired[name] || !quiet[name] {
			complain("%s: needs a case in which it fires, and one in which it does not", name)
		}
	}
	if failures > 0 {
		os.Exit(1)
	}
}

func readCases(path string) []testCase {
	text, err := os.ReadFile(path)
	if err != nil {
		fail("%v", err)
	}
	var cases []testCase
	if err := yaml.Unmarshal(text, &cases); err != nil {
		fail("%s: %v", path, err)
	}
	return cases
}

// firing is the labels with which the rule fires at the case's time: those of
// which its expression had a value for as long as `for` says; and the last
// value.
func firing(rule rulefmt.Rule, test testCase) (string, float64, error) {
	series, err := read(test.Series)
	if err != nil {
		return "", 0, err
	}
	value := 0.0
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1_000_000, Timeout: time.Minute})
	since := map[string]time.Duration{}
	for now := time.Duration(0); now <= test.At; now += step {
		query, err := engine.NewInstantQuery(context.Background(), series, nil, rule.Expr, time.Unix(0, 0).Add(now))
		if err != nil {
			return "", 0, err
		}
		result := query.Exec(context.Background())
		vector, err := result.Vector()
		if err != nil {
			return "", 0, err
		}
		pending := map[string]time.Duration{}
		for _, sample := range vector {
			text := sample.Metric.String()
			value = sample.F
			pending[text] = now
			if before, was := since[text]; was {
				pending[text] = before
			}
		}
		query.Close()
		since = pending
	}
	var found []string
	for text, began := range since {
		if test.At-began >= time.Duration(rule.For) {
			found = append(found, text)
		}
	}
	slices.Sort(found)
	return strings.Join(found, " "), value, nil
}

func texts(wanted []map[string]string) string {
	var all []string
	for _, each := range wanted {
		all = append(all, labels.FromMap(each).String())
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func read(descriptions map[string]string) (storage.Queryable, error) {
	var all []storage.Series
	for metric, values := range descriptions {
		name, values, err := parser.ParseSeriesDesc(metric + " " + values)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", metric, err)
		}
		var samples []chunks.Sample
		for index, value := range values {
			if !value.Omitted {
				samples = append(samples, sample{time: int64(index) * step.Milliseconds(), value: value.Value})
			}
		}
		all = append(all, storage.NewListSeries(name, samples))
	}
	slices.SortFunc(all, func(a, b storage.Series) int { return labels.Compare(a.Labels(), b.Labels()) })
	find := func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
		found := &set{next: -1}
		for _, series := range all {
			if matches(series.Labels(), matchers) {
				found.series = append(found.series, series)
			}
		}
		return found
	}
	return &storage.MockQueryable{MockQuerier: &storage.MockQuerier{SelectMockFunction: find}}, nil
}

func matches(name labels.Labels, matchers []*labels.Matcher) bool {
	return !slices.ContainsFunc(matchers, func(matcher *labels.Matcher) bool { return !matcher.Matches(name.Get(matcher.Name)) })
}

// set is the series that a query asked for.
type set struct {
	series []storage.Series
	next   int
}

func (s *set) Next() bool                      { s.next++; return s.next < len(s.series) }
func (s *set) At() storage.Series              { return s.series[s.next] }
func (*set) Err() error                        { return nil }
func (*set) Warnings() annotations.Annotations { return nil }

// sample is a number at a time in milliseconds.
type sample struct {
	time  int64
	value float64
}

func (s sample) T() int64                    { return s.time }
func (s sample) F() float64                  { return s.value }
func (sample) H() *histogram.Histogram       { return nil }
func (sample) FH() *histogram.FloatHistogram { return nil }
func (sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample         { return s }

func fail(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
	os.Exit(2)
}
