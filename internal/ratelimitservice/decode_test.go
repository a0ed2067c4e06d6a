package ratelimitservice

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"weir/internal/must"
)

// A request is decoded as package proto does, whatever is in it. Fields that a new version of the
// protocol adds are found here, too.
func TestDecodeRequest(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2000) {
		random := rand.New(rand.NewPCG(seed, 0))
		var bytes []byte
		for range 1 + random.IntN(2) { // messages that follow each other are merged
			b := must.Get(proto.Marshal(filled((&pb.RateLimitRequest{}).ProtoReflect(), random).Interface()))(t)
			bytes = append(bytes, b...)
		}
		alike(t, bytes)
		for range 5 { // damaged
			damaged := append([]byte(nil), bytes...)
			for range min(3, len(damaged)) {
				damaged[random.IntN(len(damaged))] = byte(random.Uint32())
			}
			alike(t, damaged[:random.IntN(len(damaged)+1)])
		}
	}
}

func FuzzDecodeRequest(f *testing.F) {
	f.Add([]byte("\x0a\x01d\x12\x06\x0a\x04\x0a\x02\xff\xfe"))
	f.Fuzz(func(t *testing.T, b []byte) { alike(t, b) })
}

// alike compares with package proto, which reports texts that are not UTF-8 as its only further
// mistake.
func alike(t *testing.T, b []byte) {
	t.Helper()
	var want, got pb.RateLimitRequest
	wrong, err := proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(b, &want), decodeRequest(b, &got)
	if wrong != nil && strings.Contains(wrong.Error(), "UTF-8") {
		return
	}
	if len(want.GetDescriptors()) > maxDescriptors {
		return
	}
	if (wrong != nil) != (err != nil) || err == nil && !proto.Equal(&got, &want) {
		t.Fatalf("%x: got %v, %v, want %v, %v", b, &got, err, &want, wrong)
	}
}

// filled sets fields of a message and of those in it.
func filled(m protoreflect.Message, random *rand.Rand) protoreflect.Message {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		if f := fields.Get(i); random.IntN(4) > 0 {
			if f.IsList() {
				list := m.Mutable(f).List()
				for range random.IntN(4) {
					list.Append(valueOf(f, list.NewElement(), random))
				}
				continue
			}
			m.Set(f, valueOf(f, m.NewField(f), random))
		}
	}
	return m
}

func valueOf(f protoreflect.FieldDescriptor, empty protoreflect.Value, random *rand.Rand) protoreflect.Value {
	n := random.Uint64() >> random.IntN(64)
	switch f.Kind() {
	case protoreflect.MessageKind:
		filled(empty.Message(), random)
		return empty
	case protoreflect.StringKind:
		return protoreflect.ValueOfString([]string{"", "a", "é", strings.Repeat("x", 300)}[n%4])
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(n%2 == 0)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(int32(n)))
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(uint32(n))
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(n)
	}
	panic("a field of kind " + f.Kind().String())
}

// Envoy makes descriptors of headers, which have any bytes. They count as they are, and answers,
// metrics and statistics say nothing that is not UTF-8.
func TestAnyBytes(t *testing.T) {
	t.Parallel()
	stats := NewStats()
	s := start(t, newClock(), `
domain: d
descriptors:
  - key: user
    detailed_metric: true
    rate_limit: {unit: day, requests_per_unit: 2, name: user}
  - key: path
    value: /api/*
    rate_limit: {unit: day, requests_per_unit: 2}
  - {key: address, rate_limit: {unit: day, requests_per_unit: 6}}
`, ServiceOptions{Stats: stats, Metadata: true, Fields: 3})
	on := serveService(t, s)
	for i, step := range []struct {
		descriptor string
		want       pb.RateLimitResponse_Code
	}{
		{"user=a\xff", pb.RateLimitResponse_OK},
		{"user=a\xff", pb.RateLimitResponse_OK},
		{"user=a\xff", pb.RateLimitResponse_OVER_LIMIT},
		{"user=a\xfe", pb.RateLimitResponse_OK},
		{"user=a\ufffd", pb.RateLimitResponse_OK},
		{"path=/api/\xc3", pb.RateLimitResponse_OK},
		{"user\xff=a", pb.RateLimitResponse_OVER_LIMIT}, // the address's limit holds
	} {
		r := request("d", step.descriptor, "address=1")
		if i == 6 {
			r.Descriptors[0].Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 1, Unit: 2}
		}
		var answer pb.RateLimitResponse
		err := on.connection.Invoke(t.Context(), pb.RateLimitService_ShouldRateLimit_FullMethodName, encoded(r), &answer, grpc.ForceCodec(sloppy{}))
		must.Report(t, err)
		must.Equal(t, answer.OverallCode, step.want, "step %d, %q", i, step.descriptor)
	}
	// The domain of nobody.
	var answer pb.RateLimitResponse
	must.Report(t, on.connection.Invoke(t.Context(), pb.RateLimitService_ShouldRateLimit_FullMethodName, encoded(request("\xff", "user=\xff")), &answer, grpc.ForceCodec(sloppy{})))
	registry := prometheus.NewRegistry()
	registry.MustRegister(stats)
	must.Get(registry.Gather())(t)
	var lines bytes.Buffer
	must.Report(t, stats.flush(&lines))
	must.Equal(t, lines.String(), strings.ToValidUTF8(lines.String(), ""), "statsd gets")
}

// encoded encodes domain, keys and values as Envoy does: as they are.
func encoded(r *pb.RateLimitRequest) (b []byte) {
	text := func(b []byte, field protowire.Number, of string) []byte {
		return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), of)
	}
	b = text(nil, 1, r.Domain)
	for _, d := range r.Descriptors {
		var descriptor []byte
		for _, e := range d.Entries {
			descriptor = text(descriptor, 1, string(text(text(nil, 1, e.Key), 2, e.Value)))
		}
		if d.Limit != nil {
			limit, _ := proto.Marshal(d.Limit) // it has numbers only
			descriptor = text(descriptor, 2, string(limit))
		}
		b = text(b, 2, string(descriptor))
	}
	return b
}

// sloppy sends bytes as they are, and reads an answer.
type sloppy struct{ raw }

func (sloppy) Unmarshal(data []byte, v any) error { return proto.Unmarshal(data, v.(proto.Message)) }
