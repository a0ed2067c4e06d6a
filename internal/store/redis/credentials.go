package redis

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	neturl "net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	signer "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/smithy-go/middleware"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"
	"golang.org/x/sync/singleflight"

	"weir/internal/panics"
)

// credentials returns the user and the password of a new connection. It is called for each.
type credentials func(ctx context.Context) (user, password string, err error)

// tokenTimeout bounds a question to a cloud. Those who connect may want to wait less.
const tokenTimeout = 10 * time.Second

// patient returns credentials that are asked for once for all who connect meanwhile. Each waits as long as its own context
// says, and the answer comes for the next though nobody waits any more. A client of a cloud that panics here has failed.
func (of credentials) patient() credentials {
	type pair struct{ user, password string }
	var calls singleflight.Group
	return func(ctx context.Context) (string, string, error) {
		asked := calls.DoChan("", func() (_ any, err error) {
			defer panics.Catch("a client of the cloud's tokens", func(caught error) { err = caught })
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tokenTimeout)
			defer cancel()
			var got pair
			got.user, got.password, err = of(ctx)
			return got, err
		})
		select {
		case answer := <-asked:
			got, _ := answer.Val.(pair)
			return got.user, got.password, answer.Err
		case <-ctx.Done():
			return "", "", fmt.Errorf("auth: no token yet: %w", ctx.Err())
		}
	}
}

// renewedAfter is how long a connection lives whose password expires. Azure's client and Google's on their machines give out no
// token that expires sooner, so a server does not end a connection that is in use.
const renewedAfter = 3 * time.Minute

const (
	entraScope  = "https://redis.azure.com/.default"
	googleScope = "https://www.googleapis.com/auth/cloud-platform"
	// googleEarly is how long before its end a token is not given out again. The metadata server has no newer one before that.
	googleEarly = 225 * time.Second
	// awsSeconds is how long AWS takes a token; it is no secret longer than that.
	awsSeconds = "900"
	// emptyHash is the SHA-256 of a request without a body.
	emptyHash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
)

var auths = []string{"aws-iam", "entra", "gcp"}

// cutCredentials takes from a URL's query how to get credentials that expire; nil if the URL has them all.
// single says that it names the only server.
func cutCredentials(u *neturl.URL, query neturl.Values, single bool) (credentials, error) {
	auth := query.Get("auth")
	service, name, region, serverless := query.Get("aws_service"), query.Get("aws_name"), query.Get("aws_region"), query.Get("aws_serverless")
	for _, field := range []string{"auth", "aws_service", "aws_name", "aws_region", "aws_serverless"} {
		if auth != "aws-iam" && field != "auth" && query.Has(field) {
			return nil, fmt.Errorf("%s: want auth=aws-iam with it", field)
		}
		query.Del(field)
	}
	_, has := u.User.Password()
	user := u.User.Username()
	address, err := netip.ParseAddr(u.Hostname())
	// A proxy on this machine may speak TLS. A cluster or Sentinel names other machines.
	here := single && (u.Hostname() == "localhost" || err == nil && address.IsLoopback())
	switch {
	case auth == "":
		return nil, nil
	case !strings.HasPrefix(u.Scheme, "rediss") && !here:
		return nil, errors.New("auth: want TLS with it, as by rediss://: whoever is on the way could read the password")
	case !slices.Contains(auths, auth):
		return nil, fmt.Errorf("auth: want %s, got %.20q", strings.Join(auths, ", "), auth)
	case has:
		return nil, errors.New("auth: want no password in the URL, as it comes from the cloud")
	case user == "" && auth != "gcp":
		return nil, fmt.Errorf("auth: want a user in the URL with %s, as in rediss://user@host:6379", auth)
	case auth == "entra":
		return entra(user)
	case auth == "gcp":
		return gcp(user), nil
	case name == "":
		return nil, errors.New("aws_name: want the name of the cache or cluster, which the token is for")
	case service != "" && service != "elasticache" && service != "memorydb":
		return nil, fmt.Errorf("aws_service: want elasticache or memorydb, got %.20q", service)
	case serverless != "" && serverless != "true":
		return nil, fmt.Errorf("aws_serverless: want true, got %.20q", serverless)
	}
	if service == "" {
		service = "elasticache"
	}
	return awsIAM(user, service, strings.ToLower(name), region, serverless == "true")
}

// refuseNothing makes an error of an answer that says null. AWS's client takes it for credentials, and panics in a goroutine of its
// own, where nobody can catch it.
func refuseNothing(stack *middleware.Stack) error {
	return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("weir.refuseNothing", func(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, error) {
		out, metadata, err := next.HandleInitialize(ctx, in)
		if v := reflect.ValueOf(out.Result); err == nil && v.Kind() == reflect.Pointer && v.IsNil() {
			err = errors.New("the answer is null")
		}
		return out, metadata, err
	}), middleware.Before)
}

// awsIAM signs a token of its own for each connection, with the credentials that AWS's own programs would find.
func awsIAM(user, service, name, region string, serverless bool) (credentials, error) {
	c, err := config.LoadDefaultConfig(context.Background(), config.WithRegion(region), config.WithAPIOptions([]func(*middleware.Stack) error{refuseNothing}))
	if err != nil {
		return nil, fmt.Errorf("auth: %w", err)
	}
	if c.Region == "" {
		return nil, errors.New("aws_region: want the cache's region, here or as AWS_REGION")
	}
	query := neturl.Values{"Action": {"connect"}, "User": {user}, "X-Amz-Expires": {awsSeconds}}
	if serverless {
		query.Set("ResourceType", "ServerlessCache")
	}
	url := "http://" + name + "/?" + query.Encode()
	return func(ctx context.Context) (string, string, error) {
		of, err := c.Credentials.Retrieve(ctx)
		if err != nil {
			return "", "", fmt.Errorf("credentials of AWS: %w", err)
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return "", "", err
		}
		signed, _, err := signer.NewSigner().PresignHTTP(ctx, of, r, emptyHash, service, c.Region, time.Now())
		return user, strings.TrimPrefix(signed, "http://"), err
	}, nil
}

// entra asks for tokens as Azure's own programs do, with their variables. The client keeps them.
func entra(user string) (credentials, error) {
	of, err := azidentity.NewDefaultAzureCredential(nil)
	if err != nil {
		return nil, fmt.Errorf("auth: %w", err)
	}
	return func(ctx context.Context) (string, string, error) {
		token, err := of.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{entraScope}})
		if err != nil {
			return "", "", fmt.Errorf("a token of Entra: %w", err)
		}
		return user, token.Token, nil
	}, nil
}

// gcp asks for tokens as Google's own programs do. It looks for their source with the first connection, because that asks the
// network. It is called once at a time.
func gcp(user string) credentials {
	var tokens oauth2.TokenSource
	client := context.WithValue(context.Background(), oauth2.HTTPClient, &http.Client{Timeout: tokenTimeout})
	return func(context.Context) (string, string, error) {
		if tokens == nil {
			found, err := google.FindDefaultCredentialsWithParams(client, google.CredentialsParams{Scopes: []string{googleScope}, EarlyTokenRefresh: googleEarly})
			if err != nil {
				return "", "", fmt.Errorf("credentials of Google: %w", err)
			}
			tokens = found.TokenSource
		}
		token, err := tokens.Token()
		if err != nil {
			return "", "", fmt.Errorf("a token of Google: %w", err)
		}
		return user, token.AccessToken, nil
	}
}
