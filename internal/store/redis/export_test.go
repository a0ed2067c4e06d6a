package redis

import "context"

// Credentials returns those of a new connection of a store with a URL.
func Credentials(ctx context.Context, url string) (user, password string, err error) {
	at, err := parseURL(url)
	if err != nil {
		return "", "", err
	}
	return at.credentials(ctx)
}
